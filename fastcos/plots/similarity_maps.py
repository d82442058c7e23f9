"""Figure 1 of the paper: heat maps of item-item cosines."""

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastcos.comparison import EQ2, Comparison, RescalingScores
from fastcos.plots.style import MAP_COLOURS, figure_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_PIXELS = 1000
PANEL_INCHES = 2.9

Image = npt.NDArray[np.float64]


def similarity_image(items: Any, order: Any, *, pixels: int = MAX_PIXELS) -> Image:
    """Return the matrix of item-item cosines, at most pixels x pixels, as block means.

    Parameters
    ----------
    items : ndarray (p, k)
        Item embeddings.
    order : ndarray (m,), int
        Items to show, in this order.
    pixels : int, default 1000
        Largest side of the image. A pixel is the mean cosine between two runs of items, computed as
        the dot product of the mean unit vectors: exact, and O(pixels² k) for any number of items.

    Returns
    -------
    ndarray (b, b), float64
        b = min(m, pixels).

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos.plots import similarity_image
    >>> similarity_image(np.array([[2.0, 0.0], [0.0, 3.0]]), np.array([1, 0]))
    array([[1., 0.],
           [0., 1.]])
    """
    rows = np.asarray(items, dtype=np.float64)[order]
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    units = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    cuts = _cuts(len(units), pixels)
    means = np.add.reduceat(units, cuts[:-1]) / np.diff(cuts)[:, None]
    return np.asarray(means @ means.T)


def truth_image(labels: Any, order: Any, *, pixels: int = MAX_PIXELS) -> Image:
    """Return the share of pairs with one label, as an image of the same shape as the others."""
    _, codes = np.unique(np.asarray(labels)[order], return_inverse=True)
    return similarity_image(np.eye(codes.max() + 1)[codes], np.arange(len(codes)), pixels=pixels)


def _cuts(n: int, pixels: int) -> npt.NDArray[np.int64]:
    blocks = min(n, pixels)
    return np.arange(blocks + 1, dtype=np.int64) * n // blocks


@dataclass
class SimilarityMapsDisplay:
    """Figure 1 of the paper: heat maps of item-item cosines under several rescalings.

    Attributes
    ----------
    images : list of ndarray
        One per panel, values from -1 to 1.
    titles : list of str
    boundaries : ndarray
        Fractions of the side at which the label changes.
    figure_, axes_
        What ``plot`` drew on.

    Examples
    --------
    >>> import fastcos
    >>> from fastcos.plots import SimilarityMapsDisplay
    >>> data = fastcos.simulate_interactions(300, 60, random_state=0)
    >>> found = fastcos.compare(data.X, data.item_cluster, n_components=8, measures=["cosine"])
    >>> len(SimilarityMapsDisplay.from_comparison(found).plot().images)
    9
    """

    images: list[Image]
    titles: list[str]
    boundaries: npt.NDArray[np.float64]
    figure_: Any = field(default=None, init=False, repr=False)
    axes_: Any = field(default=None, init=False, repr=False)

    @classmethod
    def from_comparison(cls, comparison: Comparison) -> "SimilarityMapsDisplay":
        """Make the panels of a comparison: the truth, every named rescaling, Eq. 2.

        With labels, the rescalings are in order of ascending AUC, after the one of the exponent
        grid with the lowest. Items are sorted by label, then by descending popularity; items
        without a label are left out.

        Parameters
        ----------
        comparison : Comparison

        Returns
        -------
        SimilarityMapsDisplay
        """
        labels, popularity = comparison.labels, comparison.popularity
        if labels is None:
            order, boundaries = np.argsort(-popularity, kind="stable"), np.empty(0)
            images, titles = [], []
        else:
            order = np.lexsort((-popularity, labels))
            order = order[labels[order] >= 0]
            boundaries = (np.flatnonzero(np.diff(labels[order])) + 1) / len(order)
            images = [truth_image(labels, order)]
            titles = ["truth: 1 for the same label"]
        for row in _shown(comparison):
            images.append(similarity_image(comparison.item_embeddings(row), order))
            titles.append(_title(row))
        return cls(images, titles, boundaries)

    def plot(self) -> "SimilarityMapsDisplay":
        """Draw all panels, three a row, with one colour scale, on a figure of their own.

        Returns
        -------
        SimilarityMapsDisplay
            Itself, with ``figure_`` and ``axes_``.
        """
        with figure_style():
            self._draw()
        return self

    def _draw(self) -> None:
        from matplotlib.figure import Figure

        n_columns = min(3, len(self.images))
        n_rows = -(-len(self.images) // n_columns)
        figure = Figure(
            figsize=(PANEL_INCHES * n_columns + 0.9, (PANEL_INCHES + 0.45) * n_rows + 0.3),
            layout="constrained",
        )
        axes = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
        for ax, image, title in zip(axes, self.images, self.titles, strict=False):
            drawn = self._panel(ax, image, title)
        for ax in axes[len(self.images) :]:
            ax.remove()
        figure.colorbar(
            drawn, ax=axes[: len(self.images)].tolist(), label="cosine similarity", shrink=0.8
        )
        figure.supxlabel("items, sorted by label, then by descending popularity", fontsize="medium")
        self.figure_, self.axes_ = figure, axes[: len(self.images)]

    def _panel(self, ax: "Axes", image: Image, title: str) -> Any:
        drawn = ax.imshow(image, cmap=MAP_COLOURS, vmin=-1, vmax=1)
        for boundary in self.boundaries * len(image) - 0.5:
            ax.axhline(boundary, color="black", linewidth=0.4)
            ax.axvline(boundary, color="black", linewidth=0.4)
        ax.set_title(title, fontsize="medium")
        ax.set_xticks([])
        ax.set_yticks([])
        return drawn


def _shown(comparison: Comparison) -> list[RescalingScores]:
    """Rows that get a panel, in their order."""
    free = [row for row in comparison.named if row.name != EQ2]
    unique = [row for row in comparison.named if row.name == EQ2]
    if comparison.labels is None or not comparison.grid:
        return [*free, *unique]
    worst = min(comparison.grid, key=_auc)
    return [
        worst,
        *sorted((row for row in free if row.rescaling != worst.rescaling), key=_auc),
        *unique,
    ]


def _auc(row: RescalingScores) -> float:
    return -1.0 if row.pair_auc is None else row.pair_auc


def _title(row: RescalingScores) -> str:
    model = "Eq. 2, unique"
    if row.name != EQ2:
        model = f"Eq. 1, $D = {_mathematics(row.formula)}$"
        known = "" if row.rescaling is None else row.rescaling.name
        model += f" ({known})" if known != row.formula else ""
    if row.pair_auc is None:
        return f"{model}\nJaccard@10 with D = I {row.jaccard_at_10:.2f}"
    return f"{model}\nAUC {row.pair_auc:.3f}   MAP@R {row.map_at_r:.2f}"


def _mathematics(formula: str) -> str:
    """D as matplotlib's mathtext: S^1/2 Σ^-1 becomes S^{1/2} Σ^{-1}."""
    return re.sub(r"\^(\S+)", r"^{\1}", formula).replace(" ", r"\,").replace("Σ", r"\Sigma")
