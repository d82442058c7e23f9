"""Figures of a calibration: the distribution of scores, its tail, and the operating curve."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fastcos.auditing.calibration.labelled import LabelledCalibration
from fastcos.auditing.calibration.result import Calibration
from fastcos.plots.style import COLOURS, Display

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# bars of the histogram, which a narrow screen still separates
_BARS = 120
# points of a curve
_POINTS = 400


@dataclass
class ScoreDistributionDisplay(Display):
    """Histogram of the scores of random pairs; a dashed line marks the threshold.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos import calibrate
    >>> from fastcos.plots import ScoreDistributionDisplay
    >>> found = calibrate(np.random.default_rng(0).standard_normal((200, 6)))
    >>> ScoreDistributionDisplay(found).plot().ax_.get_xlabel()
    'cosine of a random pair'
    """

    calibration: Calibration

    def _draw(self, ax: "Axes") -> None:
        found = self.calibration
        used = np.flatnonzero(found.counts)
        first, last = int(used[0]), int(used[-1]) + 1
        cuts = np.unique(np.linspace(first, last, _BARS + 1).astype(np.int64))
        counts = np.add.reduceat(found.counts, cuts[:-1])
        counts[-1] = found.counts[cuts[-2] : last].sum()
        edges = found.edges[cuts]
        # a density: its bars have an area of 1
        heights = counts / found.n_pairs / np.diff(edges)
        ax.stairs(heights, edges, fill=True, color=COLOURS[0], alpha=0.75)
        ax.axvline(found.threshold(), color=COLOURS[1], linewidth=1.2, linestyle="--")
        ax.set(xlabel=f"{found.measure} of a random pair", ylabel="density", ylim=(0, None))
        ax.set_title("Scores of random pairs")
        ax.grid(visible=True, axis="y")


@dataclass
class TailDisplay(Display):
    """Share of random pairs at or above a score: observed, and by the tail model.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos import calibrate
    >>> from fastcos.plots import TailDisplay
    >>> found = calibrate(np.random.default_rng(0).standard_normal((200, 6)))
    >>> TailDisplay(found).plot().ax_.get_yscale()
    'log'
    """

    calibration: Calibration

    def _draw(self, ax: "Axes") -> None:
        found = self.calibration
        above, edges = found.pairs_above, found.edges
        # from the middle of the distribution on; each edge of a share once
        places = np.flatnonzero((above > 0) & (above <= 0.5 * found.n_pairs))
        places = places[np.linspace(0, len(places) - 1, _POINTS).astype(np.int64)]
        ax.plot(edges[places], above[places] / found.n_pairs, color=COLOURS[0], label="observed")
        if found.tail is not None:
            end = found.threshold(found.smallest_fpr)
            scores = np.linspace(found.tail.start, max(end, found.tail.start), _POINTS)
            shares = found.tail.p_value(scores)
            kept = shares >= found.smallest_fpr
            ax.plot(
                scores[kept], shares[kept], color=COLOURS[1], linestyle="--",
                label="tail model",
            )  # fmt: skip
        ax.axhline(found.fpr, color="black", linewidth=1, linestyle=":")
        ax.set_yscale("log")
        ax.set_xlabel(f"{found.measure} of a random pair, or more")
        ax.set_ylabel("probability")
        ax.set_title("Share of random pairs at or above a score")
        ax.grid(visible=True)
        ax.legend()


@dataclass
class OperatingCurveDisplay(Display):
    """Both error rates of labelled pairs by threshold.

    Examples
    --------
    >>> from fastcos.auditing import calibrate_pairs
    >>> from fastcos.plots import OperatingCurveDisplay
    >>> found = calibrate_pairs([0.9, 0.8, 0.3, 0.7, 0.2, 0.1], [1, 1, 1, 0, 0, 0])
    >>> OperatingCurveDisplay(found).plot().ax_.get_ylabel()
    'error rate'
    """

    labelled: LabelledCalibration

    def _draw(self, ax: "Axes") -> None:
        found = self.labelled
        curves = {
            "not relevant, accepted": found.false_positive_rate,
            "relevant, not accepted": found.false_negative_rate,
        }
        for number, (name, rates) in enumerate(curves.items()):
            ax.step(
                found.thresholds, rates, where="pre", label=name, color=COLOURS[number],
                linestyle=("-", "--")[number],
            )  # fmt: skip
        ax.set(xlabel="threshold", ylabel="error rate", ylim=(0, 1.02))
        ax.set_title("Error rates of labelled pairs")
        ax.grid(visible=True)
        # above the curves, which cross the whole drawing
        ax.legend(bbox_to_anchor=(0, 1.02), loc="lower left", ncols=2, borderaxespad=0)
