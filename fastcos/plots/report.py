"""Figures of an audit report: its robustness curve, dimension shares and label recovery."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fastcos.auditing.audit_records import LabelRecovery
from fastcos.auditing.report import MAX_BARS, Audit
from fastcos.plots.style import COLOURS, Display, line_style
from fastcos.validation import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes


# For each curve: its label, colour, dashes and marker. Each colour has one meaning: blue curves
# refer to all rescalings, orange curves to a single rescaling, and green curves to linear maps.
_CURVES = {
    "unbroken": ("all rescalings: at most", 0, "-", "o"),
    "certified": ("all rescalings: at least", 0, "--", "s"),
    "certified_linear": ("all linear maps: at least", 2, "--", "^"),
    "worst_rescaling": ("one rescaling: worst found", 1, "-", "D"),
    "worst_linear": ("one linear map: worst found", 2, "-", "v"),
    "random_rescaling": ("one rescaling: random", 1, ":", "P"),
}
# The entries of the legend, from the highest curve to the lowest.
_LEGEND = ("random_rescaling", "worst_rescaling", "worst_linear", "unbroken", "certified",
           "certified_linear")  # fmt: skip
# If the figure is wider than this number of inches, the legend of the curves has two columns.
_WIDE = 5
# The height of a line of a legend in points.
_LEGEND_LINE = 14
# Condition numbers that may be labelled on the axis. A label that would overlap the previous label
# is left out.
_TICKS = (1.02, 1.1, 1.2, 1.5, 2, 3, 5, 10, 30, 100, 1e3, 1e6, 1e9, 1e15)
# The smallest distance between two labels, as a share of the axis.
_TICK_DISTANCE = 0.12


@dataclass
class RobustnessDisplay(Display):
    """The robustness curve: bounds on the share of neighbours that survive rescalings.

    The horizontal axis is the condition number up to which rescalings are allowed. The share of
    neighbours that survive every allowed rescaling lies in the shaded band. A larger share of the
    neighbours may survive a single rescaling. A vertical line marks the condition number to which
    the verdict refers.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos import audit
    >>> from fastcos.plots import RobustnessDisplay
    >>> report = audit(np.random.default_rng(0).standard_normal((200, 6)), k=5)
    >>> RobustnessDisplay(report).plot().ax_.get_ylabel()
    'share of the 5 nearest that survive'
    """

    report: Audit

    def _draw(self, ax: "Axes") -> None:
        from matplotlib.ticker import PercentFormatter

        curves = {
            name: [getattr(point, name) for point in self.report.robustness]
            for name in ("condition", *_CURVES)
        }
        condition = curves["condition"]
        ax.axvline(self.report.condition, color="black", linewidth=1, linestyle=":")
        # The label is placed between the curve of a single rescaling and the curve of all
        # rescalings.
        verdict = self.report.at_condition
        height = (verdict.worst_rescaling + verdict.unbroken) / 2
        ax.annotate(
            f"verdict: {self.report.condition:g}", (self.report.condition, height), xytext=(4, 0),
            textcoords="offset points",
        )  # fmt: skip
        ax.fill_between(
            condition, curves["certified"], curves["unbroken"], color=COLOURS[0], alpha=0.15,
            linewidth=0,
        )  # fmt: skip
        lines = {}
        for name, (label, colour, dashes, marker) in _CURVES.items():
            (lines[name],) = ax.plot(
                condition, curves[name], label=label, color=COLOURS[colour], linestyle=dashes,
                marker=marker,
            )  # fmt: skip
        ax.set_xscale("function", functions=(_stretch, _unstretch))
        ax.set_xticks(ticks := _ticks(condition[-1]), [f"{tick:g}" for tick in ticks])
        ax.yaxis.set_major_formatter(PercentFormatter(1))
        ax.set_ylim(0, 1.02)
        ax.set_xlabel("condition of the rescaling: largest / smallest entry of D")
        ax.set_ylabel(f"share of the {self.report.k} nearest that survive")
        ax.grid(visible=True)
        n_columns = 2 if ax.figure.bbox.width > _WIDE * ax.figure.dpi else 1
        handles = [lines[name] for name in _LEGEND]
        _legend_above(ax, "Neighbours that survive rescalings", n_columns, handles)


@dataclass
class DimensionSharesDisplay(Display):
    """The shares of the latent dimensions in the sensitivity index.

    The figure shows the 64 dimensions with the largest shares, in the order of the columns of the
    embeddings. A horizontal line marks the share that each dimension would have if all shares were
    equal.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos import audit
    >>> from fastcos.plots import DimensionSharesDisplay
    >>> report = audit(np.random.default_rng(0).standard_normal((200, 6)), k=5)
    >>> len(DimensionSharesDisplay(report).plot().ax_.patches)
    6
    """

    report: Audit

    def _draw(self, ax: "Axes") -> None:
        from matplotlib.ticker import PercentFormatter

        shares = self.report.dimension_shares
        dimensions = np.sort(np.argsort(-shares, kind="stable")[:MAX_BARS])
        positions = np.arange(len(dimensions))
        ax.bar(positions, shares[dimensions], width=0.8, color=COLOURS[0])
        ax.axhline(1 / len(shares), color=COLOURS[1], linewidth=1.2, linestyle="--")
        ticks = positions[:: -(-len(positions) // 10)]
        ax.set_xticks(ticks, [str(number) for number in dimensions[ticks]])
        ax.yaxis.set_major_formatter(PercentFormatter(1))
        ax.set_xlabel("latent dimension")
        ax.set_ylabel("share")
        ax.set_title("Share of each latent dimension in the sensitivity index")
        ax.grid(visible=True, axis="y")


@dataclass
class LabelRecoveryDisplay(Display):
    """The scale of each latent dimension under two rescalings.

    One set of markers shows the rescaling under which cosines recover the labels worst. Another set
    of markers shows the rescaling under which cosines recover the labels best.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos.auditing import label_recovery_range
    >>> from fastcos.plots import LabelRecoveryDisplay
    >>> items = np.random.default_rng(0).standard_normal((60, 6))
    >>> recovery = label_recovery_range(items, np.arange(60) % 2)
    >>> LabelRecoveryDisplay(recovery).plot().ax_.get_xlabel()
    'latent dimension'
    """

    recovery: LabelRecovery

    def _draw(self, ax: "Axes") -> None:
        ends = (
            ("worst", self.recovery.low, self.recovery.low_rescaling),
            ("best", self.recovery.high, self.recovery.high_rescaling),
        )
        for number, (name, auc, D) in enumerate(ends):
            style = line_style(number) | {"linestyle": "none"}
            ax.plot(np.arange(len(D)), 1 / D, label=f"{name}, AUC {auc:.3f}", **style)
        ax.set_yscale("log")
        # The entries of 1 / D lie between 1 and the condition number.
        ax.set_yticks([1, self.recovery.condition], ["1", f"{self.recovery.condition:g}"])
        ax.minorticks_off()
        ax.set_xlabel("latent dimension")
        ax.set_ylabel("scale 1 / D of the items")
        ax.grid(visible=True, axis="y")
        ax.margins(y=0.1)
        title = f"Worst and best rescaling for the labels (unscaled AUC: {self.recovery.given:.3f})"
        _legend_above(ax, title, 2, ax.get_legend_handles_labels()[0])


def _legend_above(ax: "Axes", title: str, n_columns: int, handles: list[Any]) -> None:
    """Set a title, and place a legend between the title and the axes.

    Because the legend is above the axes, it does not cover any curve.
    """
    n_lines = -(-len(handles) // n_columns)
    ax.set_title(title, pad=6 + n_lines * _LEGEND_LINE)
    ax.legend(
        handles=handles, ncols=n_columns, bbox_to_anchor=(0, 1.02), loc="lower left",
        borderaxespad=0, columnspacing=1,
    )  # fmt: skip


def _stretch(condition: Floats) -> Floats:
    """Return the square root of the logarithm of each condition number.

    Most neighbours are lost at condition numbers near 1, so the function stretches this part of the
    axis.
    """
    return np.asarray(np.sqrt(np.log(np.maximum(condition, 1.0))))


def _unstretch(position: Floats) -> Floats:
    return np.asarray(np.exp(np.square(position)))


def _ticks(last: float) -> list[float]:
    """Return ticks from 1 to the condition number `last`; omit ticks whose labels would overlap."""
    ticks = [_TICKS[0]]
    for tick in _TICKS[1:]:
        distance = _stretch(np.array(tick)) - _stretch(np.array(ticks[-1]))
        if tick <= last and distance > _TICK_DISTANCE * _stretch(np.array(last)):
            ticks.append(tick)
    return ticks
