"""How every figure of fastcos looks: one set of rules, applied while drawing, left nowhere else.

Colours are those of Okabe and Ito (2008), told apart by the colour-blind; lines differ in dashes
and markers too, so that they differ in grey print.
"""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), "-")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
# diverging, zero is white
MAP_COLOURS = "RdBu_r"
_RULES: Any = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "grid.color": "0.85",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "svg.hashsalt": "fastcos",
}


@contextlib.contextmanager
def rules() -> Iterator[None]:
    """Draw by the rules of the house while the block runs."""
    from matplotlib import rc_context

    with rc_context(_RULES):
        yield


@contextlib.contextmanager
def drawing(ax: "Axes | None", width: float, height: float) -> Iterator["Axes"]:
    """Give the axes to draw on under the rules: those given, or new ones of that size in inches.

    New figures are made without pyplot: nothing is shown and no global state changes.
    """
    from matplotlib.figure import Figure

    with rules():
        yield (
            Figure(figsize=(width, height), layout="constrained").subplots() if ax is None else ax
        )


def line(number: int) -> dict[str, Any]:
    """Return colour, dashes and marker of the line of that number."""
    kinds = len(COLOURS)
    return {
        "color": COLOURS[number % kinds],
        "linestyle": DASHES[number % kinds],
        "marker": MARKERS[number % kinds],
    }
