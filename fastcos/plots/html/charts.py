"""The charts of a card as inline SVG: colours come from the page, text is never scaled.

Every chart is drawn twice, for wide and for narrow screens; the page shows one of the two.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from fastcos.auditing.report import Recovery, Survival
from fastcos.plots.html.markup import Markup, element, joined

_WIDE, _NARROW = 700, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 12, 10, 36
_QUARTERS = ((0.0, "0%"), (0.25, "25%"), (0.5, "50%"), (0.75, "75%"), (1.0, "100%"))
# bars of single dimensions that fit a narrow screen
MOST_BARS = 64


def survival_chart(points: Sequence[Survival], condition: float) -> Markup:
    """Shares of neighbours that survive, over the condition, on a logarithmic axis."""
    last = points[-1].condition
    told = (
        f"Share of neighbours that survive every rescaling, over its condition from 1 to {last:g}: "
        + "; ".join(
            f"at {p.condition:g} between {p.certified:.0%} and {p.survives_attack:.0%}"
            for p in points
        )
    )

    def draw(width: int) -> Markup:
        height = 260
        plot = _Plot(width, height)

        def at(kappa: float, share: float) -> tuple[float, float]:
            return plot.x(math.log(kappa) / math.log(last)), plot.y(share)

        def path(name: str) -> list[tuple[float, float]]:
            # an unmoved neighbour survives
            return [at(1.0, 1.0), *(at(p.condition, getattr(p, name)) for p in points)]

        certain, open_end = path("certified"), path("survives_attack")
        marks = [kappa for kappa in (1.0, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0) if kappa <= last]
        ticks = [(at(kappa, 0)[0], f"{kappa:g}") for kappa in marks]
        here = at(condition, 0)[0]
        return joined(
            [
                plot.grid(ticks, "condition of the rescaling D"),
                element("path", d=_path([*certain, *open_end[::-1]]) + "Z", class_="band"),
                element("path", d=_path(path("certified_linear")), class_="line other dashed"),
                element("path", d=_path(certain), class_="line"),
                element("path", d=_path(open_end), class_="line"),
                element("line", x1=here, x2=here, y1=plot.y(1), y2=plot.y(0), class_="marker"),
                *(
                    element("circle", cx=x, cy=y, r=3, class_="dot")
                    for x, y in (*certain[1:], *open_end[1:])
                ),
            ]
        )

    return _both(draw, 260, told)


def shares_chart(shares: Sequence[tuple[str, float]], even: float) -> Markup:
    """Bars of named shares, and a line where all would be alike."""
    top = max(max(share for _, share in shares), even) * 1.08
    largest, named = max(shares, key=lambda pair: pair[1])[::-1]
    told = (
        f"Share of each of {len(shares)} latent dimensions in the arbitrariness; the largest is "
        f"dimension {named} with {largest:.1%}, where even shares would be {even:.1%}"
    )

    def draw(width: int) -> Markup:
        plot = _Plot(width, 200)
        step = plot.width / len(shares)
        gap = 1.0 if step > 4 else 0.0
        bars = [
            element(
                "rect",
                x=plot.x(0) + number * step,
                y=plot.y(share / top),
                width=max(step - gap, 0.5),
                height=plot.y(0) - plot.y(share / top),
                class_="bar",
            )
            for number, (_, share) in enumerate(shares)
        ]
        every = max(1, round(len(shares) * 34 / plot.width))
        ticks = [
            (plot.x(0) + (number + 0.5) * step, name)
            for number, (name, _) in enumerate(shares)
            if number % every == 0
        ]
        values = [(value / top, f"{100 * value:.3g}%") for value in _round_values(top)]
        y = plot.y(even / top)
        return joined(
            [
                plot.grid(ticks, "latent dimension", values),
                *bars,
                element("line", x1=plot.x(0), x2=plot.x(1), y1=y, y2=y, class_="marker"),
            ]
        )

    return _both(draw, 200, told)


def recovery_chart(found: Recovery) -> Markup:
    """The range of the AUC on a line from chance, or below, to 1."""
    low = min(0.5, math.floor(found.low * 10) / 10)
    told = (
        f"Pairwise AUC of the labels: {found.low:.3f} under the worst rescaling found, "
        f"{found.given:.3f} as given, {found.high:.3f} under the best"
    )

    def draw(width: int) -> Markup:
        def x(auc: float) -> float:
            return 16 + (width - 32) * (auc - low) / (1 - low)

        marks = [low + 0.1 * n for n in range(round((1 - low) * 10) + 1)]
        return joined(
            [
                *(
                    element("line", x1=x(m), x2=x(m), y1=26, y2=52, class_="grid")
                    for m in marks
                ),
                *(
                    element("text", f"{m:.1f}", x=x(m), y=68, class_="tick middle") for m in marks
                ),
                element("line", x1=x(low), x2=x(1.0), y1=39, y2=39, class_="grid"),
                element("line", x1=x(found.low), x2=x(found.high), y1=39, y2=39, class_="range"),
                *(
                    element("circle", cx=x(end), cy=39, r=5, class_="dot")
                    for end in (found.low, found.high)
                ),
                element("circle", cx=x(found.given), cy=39, r=6, class_="dot other"),
                element(
                    "text", f"given {found.given:.3f}", x=_inside(x(found.given), width), y=16,
                    class_="tick middle strong",
                ),
            ]
        )  # fmt: skip

    return _both(draw, 76, told)


def rescaling_chart(name: str, rescaling: Any) -> Markup:
    """The entries of a D as bars, on a logarithmic axis from 1 / condition to 1."""
    logs = [math.log(entry) for entry in rescaling]
    width = max(max(logs) - min(logs), 1e-9)
    told = f"{name}: entries from {math.exp(min(logs)):.2f} to {math.exp(max(logs)):.2f}"

    def draw(size: int) -> Markup:
        step = size / len(logs)
        bars = [
            element("rect", x=number * step, y=34 - 30 * (log - min(logs)) / width,
                    width=max(step - (1 if step > 4 else 0), 0.5),
                    height=2 + 30 * (log - min(logs)) / width, class_="bar")
            for number, log in enumerate(logs)
        ]  # fmt: skip
        return joined(bars)

    return _both(draw, 38, told)


def meter(share: float, error: float) -> Markup:
    """A bar from 0 to 1 with its number, to stand in a table."""
    fill = element("span", style=f"width:{100 * min(max(share, 0.0), 1.0):.1f}%")
    told = f"{share:.2f}" + (f" ± {error:.2f}" if error >= 0.005 else "")
    return element("span", element("span", fill, class_="track"), told, class_="meter")


class _Plot:
    """Places in a chart with axes: fractions from 0 to 1 to points."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self._height = width - _LEFT - _RIGHT, height - _TOP - _BOTTOM

    def x(self, fraction: float) -> float:
        """Where a fraction of the width is."""
        return _LEFT + fraction * self.width

    def y(self, fraction: float) -> float:
        """Where a fraction of the height is."""
        return _TOP + (1 - fraction) * self._height

    def grid(
        self,
        ticks: Sequence[tuple[float, str]],
        label: str,
        values: Sequence[tuple[float, str]] = _QUARTERS,
    ) -> Markup:
        """Lines across, their values, ticks below and what they count."""
        right, bottom = self.x(1), self.y(0)
        return joined(
            [
                *(
                    element("line", x1=self.x(0), x2=right, y1=self.y(v), y2=self.y(v),
                            class_="grid")
                    for v, _ in values
                ),
                *(
                    element("text", name, x=_LEFT - 7, y=self.y(v) + 4, class_="tick end")
                    for v, name in values
                ),
                *(
                    element("text", name, x=x, y=bottom + 16, class_="tick middle")
                    for x, name in ticks
                ),
                element("text", label, x=self.x(0.5), y=bottom + 32, class_="tick middle"),
            ]
        )  # fmt: skip


def _both(draw: Callable[[int], Markup], height: int, told: str) -> Markup:
    """Return a figure with the drawing at both widths."""
    drawings = [
        element(
            "svg", draw(width), viewBox=f"0 0 {width} {height}", width=width, height=height,
            role="img", aria_label=told, class_=kind,
        )
        for kind, width in (("wide", _WIDE), ("narrow", _NARROW))
    ]  # fmt: skip
    return element("div", *drawings, class_="chart")


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _round_values(top: float) -> list[float]:
    """0 and two to four round numbers up to top."""
    size = 10.0 ** math.floor(math.log10(top))
    step = next(step for step in (0.2 * size, 0.5 * size, size, 2 * size) if top / step <= 5)
    return [step * n for n in range(int(top / step) + 1)]


def _inside(x: float, width: int) -> float:
    return min(max(x, 44.0), width - 44.0)
