"""Figures of one model and of one audit, as display objects in scikit-learn's manner.

A display is made from a result (``from_estimator``, ``from_audit``), drawn by ``plot(ax=)``, which
returns it, and never shown by itself: ``display.figure_.savefig("name.png")``.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastcos import validation
from fastcos.auditing.report import Audit
from fastcos.measures.rescaling import rescalings
from fastcos.models.linear_mf import LinearMF
from fastcos.plots.style import COLOURS, drawing, line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Curve = npt.NDArray[np.float64]


@dataclass
class RescalingsDisplay:
    """What the rescalings of one model do to its latent dimensions.

    Attributes
    ----------
    norms : dict of str to ndarray (k,)
        Norm of every column of the item embeddings over the largest, by rescaling. A cosine weighs
        a dimension by the square.
    figure_, ax_
        What ``plot`` drew on.

    Examples
    --------
    >>> import fastcos
    >>> from fastcos.plots.rescalings import RescalingsDisplay
    >>> X = fastcos.simulate_interactions(300, 60, random_state=0).X
    >>> display = RescalingsDisplay.from_estimator(fastcos.LinearMF(8).fit(X)).plot()
    >>> display.ax_.get_xlabel()
    'latent dimension, by falling singular value'
    """

    norms: dict[str, Curve]
    figure_: Any = field(default=None, init=False, repr=False)
    ax_: Any = field(default=None, init=False, repr=False)

    @classmethod
    def from_estimator(cls, model: LinearMF) -> "RescalingsDisplay":
        """Take the named rescalings of a fitted model of Eq. 1.

        Parameters
        ----------
        model : LinearMF
            Fitted, with objective "dropout": that of Eq. 2 leaves no rescaling free.

        Returns
        -------
        RescalingsDisplay

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

    def plot(self, ax: "Axes | None" = None) -> "RescalingsDisplay":
        """Draw one line per rescaling.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Default: those of a new figure.

        Returns
        -------
        RescalingsDisplay
            Itself, with ``figure_`` and ``ax_``.
        """
        by_last = sorted(self.norms.items(), key=lambda pair: -pair[1][-1])
        with drawing(ax, 6.6, 3.6) as axes:
            for number, (name, norms) in enumerate(by_last):
                dimensions = np.arange(1, len(norms) + 1)
                every = max(1, len(norms) // 10)
                axes.plot(dimensions, norms, label=name, markevery=every, **line(number))
            axes.set_yscale("log")
            axes.set_xlabel("latent dimension, by falling singular value")
            axes.set_ylabel("norm of the item column / largest")
            axes.set_title("One model: what each rescaling makes of its dimensions")
            axes.grid(visible=True, axis="y")
            axes.legend(title="rescaling", bbox_to_anchor=(1, 0.5), loc="center left")
        self.figure_, self.ax_ = axes.get_figure(root=True), axes
        return self


@dataclass
class SurvivalDisplay:
    """Which share of the nearest neighbours outlasts rescalings, over their condition.

    Attributes
    ----------
    condition : ndarray (m,)
        Largest over smallest entry of D, rising from 1.
    certified_linear, certified, survives_attack : ndarray (m,)
        Shares of the edges: certain under every linear map of that condition, certain under every
        rescaling of it, and not yet lost to an attack by rescalings. The truth about rescalings
        lies between the last two.
    k : int
        Neighbours per item.
    figure_, ax_
        What ``plot`` drew on.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos import audit
    >>> from fastcos.plots.rescalings import SurvivalDisplay
    >>> card = audit(np.random.default_rng(0).standard_normal((200, 6)), k=5)
    >>> bool((np.diff(SurvivalDisplay.from_audit(card).certified) <= 0).all())
    True
    """

    condition: Curve
    certified_linear: Curve
    certified: Curve
    survives_attack: Curve
    k: int
    figure_: Any = field(default=None, init=False, repr=False)
    ax_: Any = field(default=None, init=False, repr=False)

    @classmethod
    def from_audit(cls, card: Audit) -> "SurvivalDisplay":
        """Take the survival of an audit.

        Parameters
        ----------
        card : Audit

        Returns
        -------
        SurvivalDisplay
        """
        columns = {
            name: np.array([getattr(point, name) for point in card.survival], dtype=np.float64)
            for name in ("condition", "certified_linear", "certified", "survives_attack")
        }
        return cls(**columns, k=card.k)

    def plot(self, ax: "Axes | None" = None) -> "SurvivalDisplay":
        """Draw the shares; what lies between certain and lost is shaded.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Default: those of a new figure.

        Returns
        -------
        SurvivalDisplay
            Itself, with ``figure_`` and ``ax_``.
        """
        from matplotlib.ticker import PercentFormatter

        with drawing(ax, 5.6, 3.6) as axes:
            axes.fill_between(
                self.condition, self.certified, self.survives_attack, color=COLOURS[0], alpha=0.15,
                linewidth=0, label="not known",
            )  # fmt: skip
            curves = (
                ("not lost to the attack, rescalings", self.survives_attack),
                ("certain, every rescaling", self.certified),
                ("certain, every linear map", self.certified_linear),
            )
            for number, (name, shares) in enumerate(curves):
                axes.plot(self.condition, shares, label=name, **line(number))
            axes.set_xscale("function", functions=(_spaced, _unspaced))
            axes.set_xticks(self.condition, [f"{condition:g}" for condition in self.condition])
            axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
            axes.set_ylim(0, 1.02)
            axes.set_xlabel("condition of the rescaling: largest / smallest entry of D")
            axes.set_ylabel(f"share of the {self.k} nearest neighbours")
            axes.set_title("Neighbours that outlast a rescaling")
            axes.grid(visible=True)
            axes.legend()
        self.figure_, self.ax_ = axes.get_figure(root=True), axes
        return self


def _spaced(condition: Curve) -> Curve:
    """Root of the logarithm: the conditions near 1, where most is lost, get room."""
    return np.asarray(np.sqrt(np.log(np.maximum(condition, 1.0))))


def _unspaced(position: Curve) -> Curve:
    return np.asarray(np.exp(np.square(position)))
