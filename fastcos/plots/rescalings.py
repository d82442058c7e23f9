"""Figure of the named rescalings of one model."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fastcos import validation
from fastcos.measures.rescaling import rescalings
from fastcos.models.linear_mf import LinearMF
from fastcos.plots.style import Display, line_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass
class RescalingsDisplay(Display):
    """Scale of each latent dimension of one model under its named rescalings.

    Attributes
    ----------
    norms : dict of str to ndarray (k,)
        Norm of each column of the item embeddings over the largest, by rescaling. A cosine weights
        a dimension by the square.

    Examples
    --------
    >>> import fastcos
    >>> from fastcos.plots import RescalingsDisplay
    >>> X = fastcos.simulate_interactions(300, 60, random_state=0).X
    >>> display = RescalingsDisplay.from_estimator(fastcos.LinearMF(8).fit(X)).plot()
    >>> display.ax_.get_xlabel()
    'latent dimension, by descending singular value'
    """

    norms: dict[str, npt.NDArray[np.float64]]

    @classmethod
    def from_estimator(cls, model: LinearMF) -> "RescalingsDisplay":
        """Take the named rescalings of a fitted model of Eq. 1.

        Parameters
        ----------
        model : LinearMF
            Fitted, with objective "dropout": Eq. 2 determines the rescaling.

        Raises
        ------
        ValueError
            The model is of Eq. 2.
        """
        validation.as_choice("the objective of the model", model.objective, ("dropout",))
        norms = {}
        for named in rescalings():
            items = np.asarray(model.item_embeddings(named.rescaling), dtype=np.float64)
            lengths = np.linalg.norm(items, axis=0)
            norms[f"{named.name}, D = {named.rescaling.formula}"] = lengths / lengths.max()
        return cls(norms)

    def _draw(self, ax: "Axes") -> None:
        by_last = sorted(self.norms.items(), key=lambda pair: -pair[1][-1])
        for number, (name, norms) in enumerate(by_last):
            dimensions = np.arange(1, len(norms) + 1)
            step = max(1, len(norms) // 10)
            ax.plot(dimensions, norms, label=name, markevery=step, **line_style(number))
        ax.set_yscale("log")
        ax.set_xlabel("latent dimension, by descending singular value")
        ax.set_ylabel("norm of the item column / largest")
        ax.set_title("One model: scale of each dimension by rescaling")
        ax.grid(visible=True, axis="y")
        ax.legend(title="rescaling", bbox_to_anchor=(1, 0.5), loc="center left")
