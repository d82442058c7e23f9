"""Figures of models and comparisons: rescalings, maps of cosines, label recovery, leaderboard."""

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastcos import validation
from fastcos.comparison import EQ2, Comparison, Leaderboard, LeaderboardRow, RescalingScores
from fastcos.metrics.labelled import unit_rows
from fastcos.plots.style import (
    COLOURS,
    MAP_COLOURS,
    Display,
    NotebookFigure,
    figure_style,
    line_style,
)
from fastcos.similarity.rescalings import rescalings
from fastcos.validation import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fastcos.models.linear_mf import LinearMF


# The largest width and height of a map in pixels. A panel on a printed page shows fewer than 1,000
# pixels in each direction.
_MAX_PIXELS = 1000
# The width and height of a panel in inches. If a figure with five panels per row is as wide as a
# page, its letters are nearly as large as the text of the page.
_PANEL_INCHES = 1.6
# _TITLE_INCHES is the height in inches of the titles above a row of panels. _BRACKET_INCHES is the
# height in inches of the bracket above the panels, including the text of the bracket.
_TITLE_INCHES, _BRACKET_INCHES = 0.45, 0.4
# The vertical positions of the bracket and of its text. Both positions are measured from the bottom
# of a panel, in multiples of the height of the panel.
_BRACKET, _BRACKET_TEXT = 1.43, 1.48
# The name of a label is written beside its block if the block is at least _NAMED_SHARE times as
# wide as the map. Names are cut to _MAX_LETTERS characters.
_NAMED_SHARE, _MAX_LETTERS = 0.04, 16
# The rescalings of Eq. 1 in the paper: the first special case, the usual solution, and the
# rescaling of section 2.3.
_PAPER = ("orthonormal", "identity", "balanced")
# The largest number of rows in the figure of a leaderboard. A figure with this many rows is about
# ten inches high.
_MAX_ROWS = 40
_ROW_INCHES = 0.2
# The colour and the marker of each kind of row in the figure of a leaderboard. The markers
# distinguish the kinds when the figure is printed without colours.
_OTHER = COLOURS[0], "o"
_RECOMMENDED = COLOURS[1], "D"
_BASELINE = "#555555", "s"


def similarity_image(items: Any, order: Any, *, pixels: int = _MAX_PIXELS) -> Floats:
    """Return an image of the cosines of items (p, k); its rows and columns follow ``order`` (m,).

    The image has at most ``pixels`` rows and columns. A pixel is the mean cosine between two groups
    of consecutive items. The mean cosine of two groups is the dot product of their mean unit
    vectors, so the function takes O(p k + pixels² k) time.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos.plots import similarity_image
    >>> similarity_image(np.array([[2.0, 0.0], [0.0, 3.0]]), np.array([1, 0]))
    array([[1., 0.],
           [0., 1.]])
    """
    units = unit_rows(np.asarray(items, dtype=np.float64)[order])
    blocks = min(len(units), pixels)
    cuts = np.arange(blocks + 1, dtype=np.int64) * len(units) // blocks
    means = np.add.reduceat(units, cuts[:-1]) / np.diff(cuts)[:, None]
    return np.asarray(means @ means.T)


@dataclass
class SimilarityMapsDisplay(NotebookFigure):
    """Figure 1 of the paper: heat maps of item-item cosines under several rescalings.

    Attributes
    ----------
    images : list of ndarray
        One image per panel, whose values are cosines from -1 to 1.
    titles : list of str
        One title per panel.
    model : str
        The numbers of users and items, the rank, λ and the seed, which are shown below the panels.
    boundaries : ndarray
        The positions at which the label changes. The left edge of a map is 0, and the right edge is
        1.
    names : list of str
        The names of the labels in the order of their blocks; empty without labels.
    figure_, axes_
        The figure and axes of the last ``plot``.

    Examples
    --------
    >>> import fastcos
    >>> from fastcos.plots import SimilarityMapsDisplay
    >>> data = fastcos.simulate_interactions(300, 60, random_state=0)
    >>> comparison = fastcos.compare(
    ...     data.X, data.item_cluster, n_components=8, measures=["cosine"]
    ... )
    >>> len(SimilarityMapsDisplay.from_comparison(comparison).plot().images)
    5
    >>> len(SimilarityMapsDisplay.from_comparison(comparison, every=True).images)
    9
    """

    images: list[Floats] = field(repr=False)
    titles: list[str]
    model: str
    boundaries: npt.NDArray[np.float64]
    names: list[str]
    figure_: Any = field(default=None, init=False, repr=False)
    axes_: Any = field(default=None, init=False, repr=False)

    @classmethod
    def from_comparison(
        cls, comparison: Comparison, *, every: bool = False
    ) -> "SimilarityMapsDisplay":
        """Make the panels of a comparison: the true labels, rescalings of Eq. 1, and Eq. 2.

        Items are sorted by label, and items with the same label are sorted by descending
        popularity. Items without a label are left out. The order of the panels is fixed, so that
        figures can be compared.

        Parameters
        ----------
        comparison : Comparison
        every : bool
            Whether to show all named rescalings, and also the rescaling with the lowest AUC in the
            exponent grid. By default, the figure shows the rescalings of the paper (D = S^1/2, I
            and Σ^-1/2), and the rescalings that the caller of ``compare`` has added.
        """
        labels, popularity = comparison.labels, comparison.popularity
        if labels is None:
            order, boundaries = np.argsort(-popularity, kind="stable"), np.empty(0)
            images, titles, names = [], [], list[str]()
        else:
            order = np.lexsort((-popularity, labels))
            order = order[labels[order] >= 0]
            boundaries = (np.flatnonzero(np.diff(labels[order])) + 1) / len(order)
            # Each label is represented by a different unit vector, so that the cosine is 1 within a
            # label, and 0 between labels.
            label_numbers, codes = np.unique(labels[order], return_inverse=True)
            names = [comparison.label_names[label] for label in label_numbers]
            images = [similarity_image(np.eye(codes.max() + 1)[codes], np.arange(len(codes)))]
            titles = ["The truth:\n1 for equal labels,\n0 for different labels"]
        for row in _shown(comparison, every):
            images.append(similarity_image(comparison.item_embeddings(row), order))
            titles.append(_title(row))
        return cls(images, titles, _model(comparison), boundaries, names)

    @figure_style()
    def plot(self) -> "SimilarityMapsDisplay":
        """Draw all panels on a new figure, five per row, with one colour scale."""
        from matplotlib.figure import Figure

        n_columns = min(5, len(self.images))
        n_rows = -(-len(self.images) // n_columns)
        figure = Figure(
            figsize=(
                _PANEL_INCHES * n_columns + 0.9,
                (_PANEL_INCHES + _TITLE_INCHES) * n_rows + _BRACKET_INCHES + 0.3,
            ),
            layout="constrained",
        )
        axes = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
        for ax, image, title in zip(axes, self.images, self.titles, strict=False):
            colours = ax.imshow(image, cmap=MAP_COLOURS, vmin=-1, vmax=1)
            for boundary in self.boundaries * len(image) - 0.5:
                ax.axhline(boundary, color="black", linewidth=0.4)
                ax.axvline(boundary, color="black", linewidth=0.4)
            ax.set_title(title, fontsize="medium")
            ax.set(xticks=[], yticks=[])
        self._name_blocks(axes[0])
        for ax in axes[len(self.images) :]:
            ax.remove()
        of_eq1 = [n for n, title in enumerate(self.titles) if title.startswith("Eq. 1")]
        if n_rows == 1 and len(of_eq1) > 1:
            room = 1 - _BRACKET_INCHES / figure.get_figheight()
            figure.set_layout_engine("constrained", rect=(0, 0, 1, room))
            _bracket(axes[of_eq1[0]], axes[of_eq1[-1]])
        figure.colorbar(
            colours, ax=axes[: len(self.images)].tolist(), label="cosine of two items", shrink=0.7,
            aspect=14, pad=0.01, ticks=[-1, 0, 1],
        )  # fmt: skip
        order = "items, sorted by label, then by descending popularity"
        if not len(self.boundaries):
            order = "items, sorted by descending popularity"
        figure.supxlabel(f"{order}\n{self.model}", fontsize="medium")
        self.figure_, self.axes_ = figure, axes[: len(self.images)]
        return self

    def _name_blocks(self, ax: "Axes") -> None:
        """Write the name of each label beside its block, if the block is large enough."""
        edges = np.array([0.0, *self.boundaries, 1.0]) * len(self.images[0]) - 0.5
        blocks = zip(edges[:-1], edges[1:], self.names, strict=False)
        side = _NAMED_SHARE * len(self.images[0])
        ticks = [((a + b) / 2, name[:_MAX_LETTERS]) for a, b, name in blocks if b - a >= side]
        ax.set_yticks([place for place, _ in ticks], [name for _, name in ticks])
        ax.tick_params(axis="y", length=0)


def _bracket(first: "Axes", last: "Axes") -> None:
    """Draw a bracket above the panels of one model, from the first panel to the last panel."""
    from matplotlib.patches import ConnectionPatch

    style: Any = {"color": COLOURS[0], "linewidth": 1.5, "clip_on": False}
    ends, frame = ((0, _BRACKET), (1, _BRACKET)), "axes fraction"
    last.figure.add_artist(ConnectionPatch(*ends, frame, frame, axesA=first, axesB=last, **style))
    for ax, side in ((first, 0), (last, 1)):
        ax.plot([side, side], [_BRACKET - 0.05, _BRACKET], transform=ax.transAxes, **style)
    first.text(
        0, _BRACKET_TEXT, "one trained model, one loss, one set of predictions",
        transform=first.transAxes, color=COLOURS[0], weight="bold", in_layout=False,
    )  # fmt: skip


def _typeset(formula: str) -> str:
    """Return the formula of D as TeX for matplotlib: S^1/2, for example, becomes S^{1/2}."""
    braced = re.sub(r"\^(\S+)", r"^{\1}", formula)
    return "$D = " + braced.replace(" ", r"\,").replace("Σ", r"\Sigma") + "$"


def _shown(comparison: Comparison, every: bool) -> list[RescalingScores]:
    """Return the rows of the comparison that the figure shows, in the order of its panels."""
    rescaling_names = [rescaling.name for rescaling in rescalings()]
    rows = {row.name: row for row in comparison.named}
    extra_names = [name for name in rows if name not in rescaling_names and name != EQ2]
    names = (*(rescaling_names if every else _PAPER), *extra_names, EQ2)
    panel_rows = [rows[name] for name in names if name in rows]
    if every and comparison.labels is not None and comparison.grid:
        worst = min(comparison.grid, key=lambda row: row.pair_auc or 0.0)
        if worst.rescaling not in {row.rescaling for row in panel_rows}:
            panel_rows.insert(0, worst)
    return panel_rows


def _model(comparison: Comparison) -> str:
    """Return a line with the numbers of users and items, the rank, λ and the seed."""
    parameters = comparison.parameters
    strengths = {"dropout": "regularization", "weight_decay": "weight_decay"}
    equations = {"dropout": "Eq. 1", "weight_decay": "Eq. 2"}
    strength = ", ".join(
        f"λ = {parameters[strengths[objective]]:,.6g} of {equations[objective]}"
        for objective in comparison.models
    )
    return (
        f"n = {parameters['n_users']:,} users, p = {parameters['n_items']:,} items, rank k = "
        f"{parameters['n_components']}, {strength}, seed {parameters['random_state']}"
    )


def _title(row: RescalingScores) -> str:
    model = "Eq. 2\nits only solution"
    if row.name != EQ2:
        name = "" if row.rescaling is None else row.rescaling.name
        model = f"Eq. 1, {_typeset(row.formula)}\n{name if name != row.formula else ''}"
    if row.pair_auc is None:
        return f"{model}\nJaccard with D = I {row.jaccard_at_10:.2f}"
    return f"{model}\nAUC {row.pair_auc:.3f}"


@dataclass
class ExponentGridDisplay(Display):
    """A heat map that shows how well cosines recover the labels (AUC) under D = S^a Σ^b.

    Attributes
    ----------
    auc : ndarray
        Pairwise AUC under D = S^a Σ^b. Each row of the array corresponds to one value of a, and
        each column corresponds to one value of b.
    shrinkage, spectrum : list of float
        The values of the exponents a and b.

    Examples
    --------
    >>> import fastcos
    >>> from fastcos.plots import ExponentGridDisplay
    >>> data = fastcos.simulate_interactions(300, 60, random_state=0)
    >>> comparison = fastcos.compare(
    ...     data.X, data.item_cluster, n_components=8, measures=["cosine"]
    ... )
    >>> ExponentGridDisplay.from_comparison(comparison).plot().auc.shape
    (3, 5)
    """

    auc: Floats
    shrinkage: list[float]
    spectrum: list[float]

    @classmethod
    def from_comparison(cls, comparison: Comparison) -> "ExponentGridDisplay":
        """Display the exponent grid of a comparison; the comparison must have labels."""
        auc_of = {(row.shrinkage, row.spectrum): row.pair_auc for row in comparison.grid}
        shrinkage = sorted({row.shrinkage or 0.0 for row in comparison.grid})
        spectrum = sorted({row.spectrum or 0.0 for row in comparison.grid})
        auc = np.array([[auc_of[a, b] for b in spectrum] for a in shrinkage], dtype=np.float64)
        return cls(auc, shrinkage, spectrum)

    def _inches(self) -> tuple[float, float]:
        return 6.4, 3.4

    def _draw(self, ax: "Axes") -> None:
        image = ax.imshow(self.auc, cmap="cividis", vmin=0.5, vmax=1, aspect="auto")
        names = {
            (named.rescaling.shrinkage, named.rescaling.spectrum): named.name
            for named in rescalings()
        }
        for (i, j), value in np.ndenumerate(self.auc):
            # Cells with values below 0.75 have dark colours, so white text is easier to read on
            # these cells.
            colour = "white" if value < 0.75 else "black"
            name = names.get((self.shrinkage[i], self.spectrum[j]), "")
            text = f"{value:.2f}\n{name}" if name else f"{value:.2f}"
            ax.text(j, i, text, ha="center", va="center", color=colour, size="medium")
        ax.set_xticks(range(len(self.spectrum)), [f"{b:g}" for b in self.spectrum])
        ax.set_yticks(range(len(self.shrinkage)), [f"{a:g}" for a in self.shrinkage])
        ax.set_xlabel(r"exponent $b$ of the singular values $\Sigma$")
        ax.set_ylabel(r"exponent $a$ of the shrinkage $S$")
        ax.set_title(r"One model, one loss: AUC of the labels under $D = S^a\,\Sigma^b$")
        figure: Any = ax.get_figure(root=True)
        figure.colorbar(image, ax=ax, label="pairwise AUC (0.5 is chance level)")


@dataclass
class LeaderboardDisplay(Display):
    """The best row of each measure in a leaderboard, drawn as a dot with an interval.

    Attributes
    ----------
    rows : list of LeaderboardRow
        The best row of each measure, and the row of the baseline, in descending order of the score.
        If there are more than 40 measures, the figure shows the 40 measures with the highest
        scores, and the baseline.
    leaderboard : Leaderboard

    Examples
    --------
    >>> import numpy as np
    >>> import fastcos
    >>> from fastcos.plots import LeaderboardDisplay
    >>> vectors = np.random.default_rng(0).standard_normal((100, 4))
    >>> board = fastcos.compare_vectors(vectors, np.argmax(vectors, axis=1), measures=["dot"])
    >>> len(LeaderboardDisplay.from_leaderboard(board).plot().rows)
    2
    """

    rows: list[LeaderboardRow]
    leaderboard: Leaderboard

    @classmethod
    def from_leaderboard(cls, leaderboard: Leaderboard) -> "LeaderboardDisplay":
        """Create the display that shows the baseline and the best row of each measure."""
        rows = leaderboard.best_per_measure()[:_MAX_ROWS]
        if leaderboard.baseline not in {row.candidate for row in rows}:
            rows.append(leaderboard.row(leaderboard.baseline))
        return cls(sorted(rows, key=lambda row: -row.score.value), leaderboard)

    def _inches(self) -> tuple[float, float]:
        return 6.8, 1.4 + _ROW_INCHES * len(self.rows)

    def _draw(self, ax: "Axes") -> None:
        board, n = self.leaderboard, len(self.rows)
        in_legend = set()
        for place, row in enumerate(self.rows):
            (colour, marker), meaning = self._style(row)
            score = row.score
            error = [[score.value - score.low], [score.high - score.value]]
            ax.errorbar(
                score.value, place, xerr=error, color=colour, marker=marker, linestyle="none",
                capsize=2, linewidth=1.2, label=None if meaning in in_legend else meaning,
            )  # fmt: skip
            in_legend.add(meaning)
        baseline = board.row(board.baseline).score.value
        ax.axvline(baseline, color=_BASELINE[0], linewidth=0.8, linestyle=":")
        if board.score in board.chance_level:
            ax.axvline(
                board.chance_level[board.score], color="black", linewidth=0.8, linestyle="--",
                label="chance level",
            )  # fmt: skip
        ax.set_yticks(range(n), [str(row.candidate) for row in self.rows])
        ax.set_ylim(n - 0.4, -0.6)
        ax.set_xlabel(f"{board.score}, with 95 % intervals over {board.unit}")
        ax.set_title(f"{board.task}: {board.n_units:,} {board.unit}")
        ax.grid(axis="x")
        ax.legend(loc="best")

    def _style(self, row: LeaderboardRow) -> tuple[tuple[str, str], str]:
        if row.candidate == self.leaderboard.recommended:
            return _RECOMMENDED, "recommended"
        if row.candidate == self.leaderboard.baseline:
            return _BASELINE, "the plain cosine"
        under = ", best rescaling" if row.candidate.rescaling else ""
        return _OTHER, f"another measure{under}"


@dataclass
class RescalingsDisplay(Display):
    """The scale of each latent dimension of one model under its named rescalings.

    Attributes
    ----------
    norms : dict of str to ndarray (k,)
        For each rescaling, the norms of the columns of the item embeddings, divided by the largest
        norm. In a cosine, the weight of a dimension is the square of the norm of its column.

    Examples
    --------
    >>> import fastcos
    >>> from fastcos.plots import RescalingsDisplay
    >>> X = fastcos.simulate_interactions(300, 60, random_state=0).X
    >>> display = RescalingsDisplay.from_estimator(fastcos.LinearMF(8).fit(X)).plot()
    >>> display.ax_.get_xlabel()
    'latent dimension, by descending singular value'
    """

    norms: dict[str, Floats]

    @classmethod
    def from_estimator(cls, model: "LinearMF") -> "RescalingsDisplay":
        """Return the display of a model of Eq. 1; raise ValueError for a model of Eq. 2."""
        validation.as_choice("the objective of the model", model.objective, ("dropout",))
        norms = {}
        for named in rescalings():
            items = np.asarray(model.item_embeddings(named.rescaling), dtype=np.float64)
            lengths = np.linalg.norm(items, axis=0)
            norms[f"{named.name}, {_typeset(named.rescaling.formula)}"] = lengths / lengths.max()
        return cls(norms)

    def _draw(self, ax: "Axes") -> None:
        by_last = sorted(self.norms.items(), key=lambda pair: -pair[1][-1])
        for number, (name, norms) in enumerate(by_last):
            dimensions = np.arange(1, len(norms) + 1)
            step = max(1, len(norms) // 10)
            ax.plot(dimensions, norms, label=name, markevery=step, **line_style(number))
        ax.set_yscale("log")
        ax.set_xlabel("latent dimension, by descending singular value")
        ax.set_ylabel("norm of the item column, largest = 1")
        ax.set_title("One model: how much each dimension counts in the cosine of two items")
        ax.grid(visible=True, axis="y")
        ax.legend(title="rescaling", bbox_to_anchor=(1, 0.5), loc="center left")
