"""Small charts as SVG text, for pages and files without scripts: bars and lines on a zero-based scale. Colours and
fonts are the page's (CSS classes). The admin page, which draws as numbers come, has nsqc/admin/page/chart.js instead,
with the same scale.

Each chart is drawn twice, for wide windows and for phones, and the page shows one of them: a scaled-down drawing would
have unreadable text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import NamedTuple

THICKEST = 56       # pixels of a bar
LETTER = 6.2        # pixels of a letter, about
SLANT = 0.62        # height of a slanted label, relative to its length
ALL_LABELS = 11     # up to this many, all labels are shown


class Form(NamedTuple):
    """A drawing's dimensions, in pixels. labels: maximum, if not all are shown."""

    kind: str
    width: int
    height: int
    left: int
    right: int
    labels: int
    top: int = 10
    bottom: int = 26


FORMS = (Form("broad", 880, 220, 64, 56, 9), Form("narrow", 368, 210, 54, 60, 3))


class Area(NamedTuple):
    """The area of bars and lines in a drawing. bottom: pixels below it, for labels."""

    form: Form
    bottom: float
    slot: float     # pixels per label

    @property
    def floor(self) -> float:
        """The y of zero."""
        return self.form.height - self.bottom

    @property
    def high(self) -> float:
        """Pixels from zero to the top."""
        return self.floor - self.form.top


def area(form: Form, labels: Sequence[str]) -> Area:
    """The area, with room for the labels, which are slanted if they would not fit side by side."""
    slot = (form.width - form.left - form.right) / max(len(labels), 1)
    longest = max(map(len, labels), default=0) * LETTER
    slanted = len(labels) <= ALL_LABELS and longest > slot
    return Area(form, form.bottom + longest * SLANT if slanted else form.bottom, slot)


def scale(top: float, whole: bool = False) -> list[float]:
    """Round values from 0 to top or slightly above, seven at most. whole: whole numbers, of values that are."""
    if top <= 0:
        return [0.0, 1.0]
    power = 10 ** math.floor(math.log10(top / 4))
    steps = (power * part for part in (1, 2, 2.5, 5, 10))
    step = next((step for step in steps if top / step <= 5 and (not whole or step == int(step))), 1)
    return [step * number for number in range(math.ceil(top / step - 1e-9) + 1)]


def is_whole(values: Iterable[float | None]) -> bool:
    """Whether all of these are whole numbers by their type."""
    return all(value is None or isinstance(value, int) for value in values)


def bars(labels: Sequence[str], values: Sequence[float], show: Callable[[float], str], title: str,
         tips: Sequence[str] | None = None) -> str:
    """A bar for each value. show formats a value; tips: tooltips of the bars."""
    ticks = scale(max(values, default=0), is_whole(values))
    return "".join(chart(form, title, bars_in(area(form, labels), labels, values, ticks, show, tips)) for form in FORMS)


def bars_in(place: Area, labels: Sequence[str], values: Sequence[float], ticks: list[float],
            show: Callable[[float], str], tips: Sequence[str] | None) -> str:
    """One of the two drawings."""
    slot = place.slot
    thick = min(max(slot - 2, slot * 0.7), THICKEST)
    drawn = []
    for number, value in enumerate(values):
        high = value / ticks[-1] * place.high
        tip = tips[number] if tips else f"{labels[number]}: {show(value)}"
        drawn.append(f'<rect class="bar" x="{place.form.left + slot * (number + 0.5) - thick / 2:.1f}" '
                     f'y="{place.floor - high:.1f}" width="{thick:.1f}" height="{high:.1f}">'
                     f"<title>{escape(tip)}</title></rect>")
    return grid(place, ticks, show) + below(place, labels) + "".join(drawn)


def lines(labels: Sequence[str], series: Mapping[str, Sequence[float | None]], show: Callable[[float], str],
          title: str) -> str:
    """A line per series, labelled at its end; None leaves a gap."""
    ticks = scale(max((value for values in series.values() for value in values if value is not None), default=0))
    return "".join(chart(form, title, lines_in(area(form, labels), labels, series, ticks, show)) for form in FORMS)


def lines_in(place: Area, labels: Sequence[str], series: Mapping[str, Sequence[float | None]], ticks: list[float],
             show: Callable[[float], str]) -> str:
    """One of the two drawings."""
    drawn, ends = [], []
    for number, (name, values) in enumerate(series.items()):
        points = [(place.form.left + place.slot * (step + 0.5), place.floor - value / ticks[-1] * place.high, value)
                  if value is not None else None for step, value in enumerate(values)]
        for is_there, run in groupby(points, key=lambda point: point is not None):
            if is_there:
                path = " ".join(f"{point[0]:.1f},{point[1]:.1f}" for point in run if point is not None)
                drawn.append(f'<polyline class="line s{number}" points="{path}"/>')
        radius = min(2.5, max(place.slot / 2, 1.2))
        for step, point in enumerate(points):
            if point is not None:
                tip = escape(f"{labels[step]}, {name}: {show(point[2])}")
                drawn.append(f'<circle class="dot s{number}" cx="{point[0]:.1f}" cy="{point[1]:.1f}" r="{radius:.1f}">'
                             f"<title>{tip}</title></circle>")
        drawn_points = [point for point in points if point is not None]
        if drawn_points:
            ends.append((drawn_points[-1][1], -number, name))
    return grid(place, ticks, show) + below(place, labels) + "".join(drawn) + names(place, ends)


def names(place: Area, ends: list[tuple[float, int, str]]) -> str:
    """Line labels at their ends, moved apart if too close: (height, minus the line's number, name)."""
    drawn, free = [], float(place.form.top)
    for at, number, name in sorted(ends):
        free = max(at, free)
        drawn.append((free, -number, name))
        free += 13
    over = max(free - 13 - place.floor, 0)
    x = place.form.width - place.form.right + 6
    return "".join(text(x, at - over + 4, name, f"name s{number}") for at, number, name in drawn)


def grid(place: Area, ticks: list[float], show: Callable[[float], str]) -> str:
    """A faint line and a value for each tick."""
    drawn = []
    left, right = place.form.left, place.form.width - place.form.right
    for value in ticks:
        y = place.floor - value / ticks[-1] * place.high
        drawn.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        drawn.append(text(left - 8, y + 4, show(value), "tick", "end"))
    return "".join(drawn)


def below(place: Area, labels: Sequence[str]) -> str:
    """As many labels as fit."""
    step = math.ceil(len(labels) / place.form.labels) if len(labels) > ALL_LABELS else 1
    slanted = place.bottom > place.form.bottom
    drawn = []
    for number in range(0, len(labels), step):
        x = place.form.left + place.slot * (number + 0.5)
        y = place.floor + (14 if slanted else 18)
        drawn.append(text(x, y, labels[number], "tick", "end" if slanted else "middle", -40 if slanted else 0))
    return "".join(drawn)


def text(x: float, y: float, what: str, kind: str, anchor: str = "start", turn: float = 0) -> str:
    """A text. turn: in degrees."""
    turned = f' transform="rotate({turn} {x:.1f} {y:.1f})"' if turn else ""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{turned}>{escape(what)}</text>'


def chart(form: Form, title: str, inner: str) -> str:
    """The whole drawing."""
    return (f'<svg class="{form.kind}" viewBox="0 0 {form.width} {form.height}" role="img" '
            f'aria-label="{escape(title)}">{inner}</svg>')
