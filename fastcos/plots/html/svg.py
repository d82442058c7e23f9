"""Draw figures as inline SVG, in the colours of the page."""

import io
import re
from typing import Any

from markupsafe import Markup

from fastcos.plots.calibration import OperatingCurveDisplay, ScoreDistributionDisplay, TailDisplay
from fastcos.plots.report import DimensionSharesDisplay, LabelRecoveryDisplay, RobustnessDisplay
from fastcos.plots.style import COLOURS, GRID_COLOUR, Display, figure_style
from fastcos.reports import Figure

# Every figure is drawn at two widths, which are in CSS pixels. The page shows the drawing that fits
# the width of the screen, so that the size of the text is the same on every screen.
WIDTHS = {"wide": 700, "narrow": 340}
_PIXELS_PER_INCH = 96
# Colours of a figure, and the variables of the page that replace these colours. The variables have
# different values on a light page and on a dark page.
_CSS_COLOURS = {
    COLOURS[0].lower(): "var(--main)",
    COLOURS[1].lower(): "var(--other)",
    COLOURS[2].lower(): "var(--third)",
    GRID_COLOUR.lower(): "var(--rule)",
    "#000000": "currentColor",
}
_SVG = Markup(
    '<svg viewBox="0 0 {}" width="{}" height="{}" role="img" aria-label="{}" class="{}">{}</svg>'
)
_DISPLAYS: dict[str, Any] = {
    "robustness": RobustnessDisplay,
    "dimension_shares": DimensionSharesDisplay,
    "label_recovery": LabelRecoveryDisplay,
    "scores": ScoreDistributionDisplay,
    "tail": TailDisplay,
    "operating_curve": OperatingCurveDisplay,
}


def draw(figure: Figure) -> Markup:
    """Return a wide and a narrow SVG drawing of a figure, with a label for screen readers."""
    display = _DISPLAYS[figure.name](figure.record)
    height, label = figure.height, figure.label
    drawings = [_svg(display, width, height, label, kind) for kind, width in WIDTHS.items()]
    return Markup('<div class="chart">{}</div>').format(Markup("").join(drawings))


def _svg(display: Display, width: int, height: int, label: str, kind: str) -> Markup:
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    inches = width / _PIXELS_PER_INCH, height / _PIXELS_PER_INCH
    drawing_file = io.StringIO()
    # The drawing stores text as characters and not as outlines of letters. The ids of different
    # drawings must differ, because all drawings are in one document.
    with figure_style(svg_fonttype="none", svg_hashsalt=label + kind):
        drawing = Figure(figsize=inches, layout="constrained", facecolor="none")
        ax = drawing.subplots()
        display.plot(ax)
        ax.set_title("", loc="left")  # The heading of the page replaces the title of the figure.
        ax.set_facecolor("none")
        FigureCanvasSVG(drawing).print_svg(drawing_file)  # savefig would draw the figure twice.
    svg = drawing_file.getvalue()
    # Only the drawing is kept. The metadata, the style sheet, the comments, and the <svg> tag with
    # its name spaces are removed.
    svg = svg[svg.index(">", svg.index("<svg")) + 1 : svg.rindex("</svg>")]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r"\s+", " ", re.sub(r'<g id="[^"]*"', "<g", svg))
    svg = re.sub("|".join(_CSS_COLOURS), lambda colour: _CSS_COLOURS[colour[0]], svg)
    points = f"{inches[0] * 72:g} {inches[1] * 72:g}"
    return _SVG.format(points, width, height, label, kind, Markup(svg))
