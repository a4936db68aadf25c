"""Small charts as SVG text: bars and lines on a zero-based scale. Colours and fonts are the page's (CSS classes)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from itertools import groupby

WIDTH, HEIGHT = 880, 220
LEFT, RIGHT, TOP, BOTTOM = 64, 56, 10, 26
MOST_LABELS = 9
THICKEST = 56       # pixels of a bar


def scale(top: float) -> list[float]:
    """Round values from 0 up to top or a little above, four to seven of them."""
    if top <= 0:
        return [0.0, 1.0]
    power = 10 ** math.floor(math.log10(top / 4))
    step = next(power * part for part in (1, 2, 2.5, 5, 10) if top / (power * part) <= 5)
    return [step * number for number in range(math.ceil(top / step - 1e-9) + 1)]


def bars(labels: Sequence[str], values: Sequence[float], show: Callable[[float], str], title: str,
         tips: Sequence[str] | None = None) -> str:
    """A bar for each value. show writes a value; tips: what is told of a bar when it is pointed at."""
    ticks = scale(max(values, default=0))
    slot = (WIDTH - LEFT - RIGHT) / max(len(values), 1)
    thick = min(max(slot - 2, slot * 0.7), THICKEST)
    drawn = []
    for place, value in enumerate(values):
        high = value / ticks[-1] * (HEIGHT - TOP - BOTTOM)
        tip = tips[place] if tips else f"{labels[place]}: {show(value)}"
        drawn.append(f'<rect class="bar" x="{LEFT + slot * (place + 0.5) - thick / 2:.1f}" '
                     f'y="{HEIGHT - BOTTOM - high:.1f}" width="{thick:.1f}" height="{high:.1f}">'
                     f"<title>{escape(tip)}</title></rect>")
    return chart(title, grid(ticks, show) + below(labels, slot) + "".join(drawn))


def lines(labels: Sequence[str], series: dict[str, Sequence[float | None]], show: Callable[[float], str],
          title: str) -> str:
    """A line for each series, named at its end; None leaves a gap."""
    ticks = scale(max((value for values in series.values() for value in values if value is not None), default=0))
    slot = (WIDTH - LEFT - RIGHT) / max(len(labels), 1)
    drawn, ends = [], []
    for number, (name, values) in enumerate(series.items()):
        points = [(LEFT + slot * (place + 0.5), HEIGHT - BOTTOM - value / ticks[-1] * (HEIGHT - TOP - BOTTOM), value)
                  if value is not None else None for place, value in enumerate(values)]
        for is_there, run in groupby(points, key=lambda point: point is not None):
            if is_there:
                path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in run)
                drawn.append(f'<polyline class="line s{number}" points="{path}"/>')
        for place, point in enumerate(points):
            if point is not None:
                tip = escape(f"{labels[place]}, {name}: {show(point[2])}")
                drawn.append(f'<circle class="dot s{number}" cx="{point[0]:.1f}" cy="{point[1]:.1f}" r="2.5">'
                             f"<title>{tip}</title></circle>")
        found = [point for point in points if point is not None]
        if found:
            ends.append((found[-1][1], -number, name))
    return chart(title, grid(ticks, show) + below(labels, slot) + "".join(drawn) + names(ends))


def names(ends: list[tuple[float, int, str]]) -> str:
    """The names of lines at their ends, moved apart where these are close: (height, minus the line's number, name)."""
    drawn, free = [], float(TOP)
    for at, number, name in sorted(ends):
        free = max(at, free)
        drawn.append((free, -number, name))
        free += 13
    over = max(free - 13 - (HEIGHT - BOTTOM), 0)
    return "".join(text(WIDTH - RIGHT + 6, at - over + 4, name, f"name s{number}") for at, number, name in drawn)


def grid(ticks: list[float], show: Callable[[float], str]) -> str:
    """A faint line and a value for each tick."""
    found = []
    for value in ticks:
        y = HEIGHT - BOTTOM - value / ticks[-1] * (HEIGHT - TOP - BOTTOM)
        found.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        found.append(text(LEFT - 8, y + 4, show(value), "tick", "end"))
    return "".join(found)


def below(labels: Sequence[str], slot: float) -> str:
    """As many labels as there is room for."""
    step = math.ceil(len(labels) / MOST_LABELS) if len(labels) > 11 else 1
    return "".join(text(LEFT + slot * (place + 0.5), HEIGHT - 8, labels[place], "tick", "middle")
                   for place in range(0, len(labels), step))


def text(x: float, y: float, what: str, kind: str, anchor: str = "start") -> str:
    """Some words."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(what)}</text>'


def chart(title: str, inner: str) -> str:
    """The whole picture."""
    return (f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
            f"{inner}</svg>")
