"""Figures of a calibration: the distribution of scores, its tail, and the operating curve."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fastcos.auditing.calibration.labelled import LabelledCalibration
from fastcos.auditing.calibration.result import Calibration
from fastcos.plots.style import COLOURS, Display

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The number of bars of the histogram. Even a narrow screen can show this number of separate bars.
_BARS = 120
# The number of points of a curve.
_POINTS = 400


@dataclass
class ScoreDistributionDisplay(Display):
    """Histogram of the scores of random pairs, in which a dashed line marks the threshold.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos import calibrate
    >>> from fastcos.plots import ScoreDistributionDisplay
    >>> calibration = calibrate(np.random.default_rng(0).standard_normal((200, 6)))
    >>> ScoreDistributionDisplay(calibration).plot().ax_.get_xlabel()
    'cosine of a random pair'
    """

    calibration: Calibration

    def _draw(self, ax: "Axes") -> None:
        calibration = self.calibration
        nonempty_bins = np.flatnonzero(calibration.counts)
        first, last = int(nonempty_bins[0]), int(nonempty_bins[-1]) + 1
        cuts = np.unique(np.linspace(first, last, _BARS + 1).astype(np.int64))
        counts = np.add.reduceat(calibration.counts, cuts[:-1])
        counts[-1] = calibration.counts[cuts[-2] : last].sum()
        edges = calibration.edges[cuts]
        # The bars show a density, so their total area is 1.
        heights = counts / calibration.n_pairs / np.diff(edges)
        ax.stairs(heights, edges, fill=True, color=COLOURS[0], alpha=0.75)
        ax.axvline(calibration.threshold(), color=COLOURS[1], linewidth=1.2, linestyle="--")
        ax.set(xlabel=f"{calibration.measure} of a random pair", ylabel="density", ylim=(0, None))
        ax.set_title("Scores of random pairs")
        ax.grid(visible=True, axis="y")


@dataclass
class TailDisplay(Display):
    """The share of random pairs that reach a score, as observed and according to the tail model.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos import calibrate
    >>> from fastcos.plots import TailDisplay
    >>> calibration = calibrate(np.random.default_rng(0).standard_normal((200, 6)))
    >>> TailDisplay(calibration).plot().ax_.get_yscale()
    'log'
    """

    calibration: Calibration

    def _draw(self, ax: "Axes") -> None:
        calibration = self.calibration
        above, edges = calibration.pairs_above, calibration.edges
        # The curve begins at the median of the scores.
        bins = np.flatnonzero((above > 0) & (above <= 0.5 * calibration.n_pairs))
        bins = bins[np.linspace(0, len(bins) - 1, _POINTS).astype(np.int64)]
        ax.plot(edges[bins], above[bins] / calibration.n_pairs, color=COLOURS[0], label="observed")
        if calibration.tail is not None:
            end = calibration.threshold(calibration.smallest_fpr)
            scores = np.linspace(calibration.tail.start, max(end, calibration.tail.start), _POINTS)
            shares = calibration.tail.p_value(scores)
            is_reliable = shares >= calibration.smallest_fpr
            ax.plot(
                scores[is_reliable], shares[is_reliable], color=COLOURS[1], linestyle="--",
                label="tail model",
            )  # fmt: skip
        ax.axhline(calibration.fpr, color="black", linewidth=1, linestyle=":")
        ax.set_yscale("log")
        ax.set_xlabel(f"{calibration.measure} that a random pair reaches or exceeds")
        ax.set_ylabel("probability")
        ax.set_title("Share of random pairs at or above a score")
        ax.grid(visible=True)
        ax.legend()


@dataclass
class OperatingCurveDisplay(Display):
    """The false-positive rate and the false-negative rate of labelled pairs for each threshold.

    Examples
    --------
    >>> from fastcos.auditing import calibrate_pairs
    >>> from fastcos.plots import OperatingCurveDisplay
    >>> labelled = calibrate_pairs([0.9, 0.8, 0.3, 0.7, 0.2, 0.1], [1, 1, 1, 0, 0, 0])
    >>> OperatingCurveDisplay(labelled).plot().ax_.get_ylabel()
    'error rate'
    """

    labelled: LabelledCalibration

    def _draw(self, ax: "Axes") -> None:
        labelled = self.labelled
        curves = {
            "not relevant, accepted": labelled.false_positive_rate,
            "relevant, not accepted": labelled.false_negative_rate,
        }
        for number, (name, rates) in enumerate(curves.items()):
            ax.step(
                labelled.thresholds, rates, where="pre", label=name, color=COLOURS[number],
                linestyle=("-", "--")[number],
            )  # fmt: skip
        ax.set(xlabel="threshold", ylabel="error rate", ylim=(0, 1.02))
        ax.set_title("Error rates of labelled pairs")
        ax.grid(visible=True)
        # The legend is above the axes, because inside the axes it would cover the curves.
        ax.legend(bbox_to_anchor=(0, 1.02), loc="lower left", ncols=2, borderaxespad=0)
