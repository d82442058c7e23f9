"""Recovery of the labels over the exponents of D, as a grid of numbers."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fastcos.comparison import Comparison
from fastcos.measures.rescaling import rescaling_grid
from fastcos.measures.row_transforms import Floats
from fastcos.plots.style import drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass
class ExponentGridDisplay:
    """Recovery of the labels over D = S^shrinkage Σ^spectrum.

    Attributes
    ----------
    auc : ndarray
        Pairwise AUC of items V S^a Σ^b; a by row, b by column.
    shrinkage, spectrum : list of float
        The values of a and b.
    figure_, ax_
        What ``plot`` drew on.

    Examples
    --------
    >>> import fastcos
    >>> from fastcos.plots import ExponentGridDisplay
    >>> data = fastcos.simulate_interactions(300, 60, random_state=0)
    >>> found = fastcos.compare(data.X, data.item_cluster, n_components=8, measures=["cosine"])
    >>> ExponentGridDisplay.from_comparison(found).plot().auc.shape
    (3, 5)
    """

    auc: Floats
    shrinkage: list[float]
    spectrum: list[float]
    figure_: Any = field(default=None, init=False, repr=False)
    ax_: Any = field(default=None, init=False, repr=False)

    @classmethod
    def from_comparison(cls, comparison: Comparison) -> "ExponentGridDisplay":
        """Take the grid of a comparison that has labels.

        Parameters
        ----------
        comparison : Comparison

        Returns
        -------
        ExponentGridDisplay
        """
        exponents = [grid.item_exponents for grid in rescaling_grid()]
        shrinkage = sorted({a for a, _ in exponents})
        spectrum = sorted({b for _, b in exponents})
        auc = np.array([row.pair_auc for row in comparison.grid], dtype=np.float64)
        return cls(auc.reshape(len(shrinkage), len(spectrum)), shrinkage, spectrum)

    def plot(self, ax: "Axes | None" = None) -> "ExponentGridDisplay":
        """Draw the grid with its numbers.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Default: those of a new figure.

        Returns
        -------
        ExponentGridDisplay
            Itself, with ``figure_`` and ``ax_``.
        """
        with drawing(ax, 6.4, 3.4) as axes:
            drawn = axes.imshow(self.auc, cmap="cividis", vmin=0.5, vmax=1, aspect="auto")
            for (i, j), value in np.ndenumerate(self.auc):
                axes.text(j, i, f"{value:.2f}", ha="center", va="center", color=_ink(value))
            axes.set_xticks(range(len(self.spectrum)), [f"{b:g}" for b in self.spectrum])
            axes.set_yticks(range(len(self.shrinkage)), [f"{a:g}" for a in self.shrinkage])
            axes.set_xlabel("exponent b of the singular values Σ")
            axes.set_ylabel("exponent a of the shrinkage S")
            axes.set_title("One model, items V Sᵃ Σᵇ: pairwise AUC of the labels")
            self.figure_, self.ax_ = axes.get_figure(root=True), axes
            self.figure_.colorbar(drawn, ax=axes, label="pairwise AUC (0.5 is chance)")
        return self


def _ink(value: float) -> str:
    return "white" if value < 0.75 else "black"
