"""Figures over two logarithmic axes as SVG: text in, text out. Pure.

Each line is named at its end, so it can be read without colours; the page's own background shines through.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from math import ceil, floor, log10

WIDTH, HEIGHT = 460, 340
LEFT, RIGHT, TOP, BOTTOM = 62, 110, 42, 52
NAME_PIXELS = 14
COLOURS = ("#0b62a4", "#c4541c", "#2f7d32", "#7a3e9d")
STYLE = """
text { font: 12px sans-serif; fill: #57606a }
.title { font-weight: bold; font-size: 13px }
.grid { stroke: #8c959f; stroke-opacity: 0.3 }
.line { fill: none; stroke-width: 2 }
"""


@dataclass(frozen=True, slots=True)
class Series:
    """Points in the order of x; x and y are above 0."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Chart:
    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]


@dataclass(frozen=True, slots=True)
class Axis:
    """Whole decades, from `first` on, over `pixels` that begin at `start` (negative: upwards)."""

    first: int
    decades: int
    start: float
    pixels: float

    def at(self, value: float) -> float:
        return self.start + (log10(value) - self.first) / self.decades * self.pixels

    def ticks(self) -> list[float]:
        return [10.0**exponent for exponent in range(self.first, self.first + self.decades + 1)]


def axis_over(values: Sequence[float], start: float, pixels: float) -> Axis:
    first = floor(log10(min(values)))
    return Axis(first, max(1, ceil(log10(max(values))) - first), start, pixels)


def svg(charts: Sequence[Chart]) -> str:
    """Beside each other."""
    width = WIDTH * len(charts)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{HEIGHT}" viewBox="0 0 {width} {HEIGHT}">',
        f"<title>{escape('; '.join(chart.title for chart in charts))}</title>",
        f"<style>{STYLE}</style>",
    ]
    for number, chart in enumerate(charts):
        parts += [f'<g transform="translate({number * WIDTH} 0)">', *_drawn(chart), "</g>"]
    return "\n".join([*parts, "</svg>", ""])


def _drawn(chart: Chart) -> list[str]:
    points = [point for series in chart.series for point in series.points]
    x = axis_over([point[0] for point in points], LEFT, WIDTH - LEFT - RIGHT)
    y = axis_over([point[1] for point in points], HEIGHT - BOTTOM, TOP + BOTTOM - HEIGHT)
    names = apart([y.at(series.points[-1][1]) for series in chart.series], NAME_PIXELS)
    lines = zip(chart.series, COLOURS, names, strict=False)
    return [
        _text(LEFT, 20, chart.title, "title"),
        _text(LEFT, TOP - 8, chart.y_label),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, chart.x_label, anchor="middle"),
        *_grid(x, y),
        *(part for series, colour, name_at in lines for part in _line(series, colour, name_at, x, y)),
    ]


def apart(places: Sequence[float], least: float) -> list[float]:
    """The places, each at least so far from the one above as not to cover it."""
    found = list(places)
    order = sorted(range(len(places)), key=places.__getitem__)
    for above, below in pairwise(order):
        found[below] = max(found[below], found[above] + least)
    return found


def _grid(x: Axis, y: Axis) -> list[str]:
    bottom, top, right = y.start, y.start + y.pixels, x.start + x.pixels
    drawn = []
    for tick in x.ticks():
        drawn.append(f'<path class="grid" d="M{x.at(tick):.1f} {bottom:.1f}V{top:.1f}"/>')
        drawn.append(_text(x.at(tick), bottom + 16, f"{tick:,.0f}", anchor="middle"))
    for tick in y.ticks():
        drawn.append(f'<path class="grid" d="M{x.start:.1f} {y.at(tick):.1f}H{right:.1f}"/>')
        drawn.append(_text(x.start - 6, y.at(tick) + 4, f"{tick:g}", anchor="end"))
    return drawn


def _line(series: Series, colour: str, name_at: float, x: Axis, y: Axis) -> list[str]:
    places = [(x.at(one), y.at(other)) for one, other in series.points]
    way = "L".join(f"{across:.1f} {down:.1f}" for across, down in places)
    across = places[-1][0] + 8
    return [
        f'<path class="line" stroke="{colour}" d="M{way}"/>',
        *(f'<circle cx="{one:.1f}" cy="{other:.1f}" r="3" fill="{colour}"/>' for one, other in places),
        f'<text x="{across:.1f}" y="{name_at + 4:.1f}" style="fill:{colour}">{escape(series.name)}</text>',
    ]


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{named}>{escape(text)}</text>'
