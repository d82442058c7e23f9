"""The style of the figures of fastcos, and the base class of displays.

Colour-blind readers can distinguish the colours, which are from Okabe and Ito (2008). Lines also
differ in dashes and markers, so that readers can distinguish the lines in grey print.
"""

import contextlib
from collections.abc import Iterator
from importlib.util import find_spec
from io import BytesIO
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from matplotlib.axes import Axes

if find_spec("matplotlib") is None:
    raise ModuleNotFoundError(
        "fastcos.plots needs matplotlib: pip install 'fastcos[plots]'", name="matplotlib"
    )

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), "-")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
GRID_COLOUR = "#D9D9D9"
# A diverging colour map, in which zero is white.
MAP_COLOURS = "RdBu_r"
# The resolution of a figure in a notebook, in dots per inch. With this resolution, a figure of
# nine maps takes 300 kB.
_NOTEBOOK_DPI = 50
_STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "grid.color": GRID_COLOUR,
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "svg.hashsalt": "fastcos",
}


@contextlib.contextmanager
def figure_style(**changes: Any) -> Iterator[None]:
    """Use the figure style of fastcos within the ``with`` block.

    `changes` are further rc parameters of matplotlib. In the name of a parameter, write "_" instead
    of ".".
    """
    from matplotlib import rc_context

    with rc_context(_STYLE | {name.replace("_", "."): value for name, value in changes.items()}):
        yield


class NotebookFigure:
    """Base class of displays; a notebook shows the figure of a display."""

    figure_: Any = None

    def plot(self) -> Any:
        """Draw the figure; subclasses implement this method."""
        raise NotImplementedError

    def _repr_png_(self) -> bytes:
        if self.figure_ is None:
            self.plot()
        image = BytesIO()
        self.figure_.savefig(image, format="png", dpi=_NOTEBOOK_DPI)
        return image.getvalue()


class Display(NotebookFigure):
    """A figure of a result; the method ``plot`` draws the figure, as in scikit-learn.

    ``display.plot().figure_.savefig("name.png")`` saves the figure. Subclasses are dataclasses with
    the methods ``_draw`` and ``_inches``.

    Attributes
    ----------
    figure_, ax_
        The figure and axes of the last ``plot``.
    """

    ax_: Any = None

    def plot(self, ax: "Axes | None" = None) -> Self:
        """Draw the figure on ``ax``, by default on the axes of a new figure; return the display."""
        from matplotlib.figure import Figure

        with figure_style():
            if ax is None:
                # A figure that is created without pyplot changes no global state of matplotlib.
                ax = Figure(figsize=self._inches(), layout="constrained").subplots()
            self._draw(ax)
        self.figure_, self.ax_ = ax.get_figure(root=True), ax
        return self

    def _inches(self) -> tuple[float, float]:
        """Return the width and height of a new figure in inches."""
        return 6.4, 3.6

    def _draw(self, ax: "Axes") -> None:
        raise NotImplementedError


def line_style(number: int) -> dict[str, Any]:
    """Return the colour, dashes and marker of the line with this number."""
    kind = number % len(COLOURS)
    return {"color": COLOURS[kind], "linestyle": DASHES[kind], "marker": MARKERS[kind]}
