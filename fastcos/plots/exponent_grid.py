"""Label recovery over the exponents of D, as a grid of numbers."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fastcos.comparison import Comparison
from fastcos.measures.rescaling import rescaling_grid
from fastcos.measures.row_transforms import Floats
from fastcos.plots.style import Display

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass
class ExponentGridDisplay(Display):
    """Label recovery over D = S^shrinkage Σ^spectrum.

    Attributes
    ----------
    auc : ndarray
        Pairwise AUC of items V S^a Σ^b; a by row, b by column.
    shrinkage, spectrum : list of float
        The values of a and b.

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

    @classmethod
    def from_comparison(cls, comparison: Comparison) -> "ExponentGridDisplay":
        """Take the grid of a comparison that has labels."""
        exponents = [grid.item_exponents for grid in rescaling_grid()]
        shrinkage = sorted({a for a, _ in exponents})
        spectrum = sorted({b for _, b in exponents})
        auc = np.array([row.pair_auc for row in comparison.grid], dtype=np.float64)
        return cls(auc.reshape(len(shrinkage), len(spectrum)), shrinkage, spectrum)

    def _inches(self) -> tuple[float, float]:
        return 6.4, 3.4

    def _draw(self, ax: "Axes") -> None:
        image = ax.imshow(self.auc, cmap="cividis", vmin=0.5, vmax=1, aspect="auto")
        for (i, j), value in np.ndenumerate(self.auc):
            # the colour map is dark below 0.75
            colour = "white" if value < 0.75 else "black"
            ax.text(j, i, f"{value:.2f}", ha="center", va="center", color=colour)
        ax.set_xticks(range(len(self.spectrum)), [f"{b:g}" for b in self.spectrum])
        ax.set_yticks(range(len(self.shrinkage)), [f"{a:g}" for a in self.shrinkage])
        ax.set_xlabel("exponent b of the singular values Σ")
        ax.set_ylabel("exponent a of the shrinkage S")
        ax.set_title("One model, items V Sᵃ Σᵇ: pairwise AUC of the labels")
        figure: Any = ax.get_figure(root=True)
        figure.colorbar(image, ax=ax, label="pairwise AUC (0.5 is chance level)")
