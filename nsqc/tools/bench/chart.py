"""Results as one SVG: rates over time, and times by percentile."""

from __future__ import annotations

import math
from collections.abc import Callable
from html import escape

from nsqc.tools.bench.load import SAMPLE_S, Result

WIDTH, HEIGHT = 720, 220
LEFT, RIGHT, TOP, BOTTOM = 84, 24, 40, 34
INK, LINE, FAINT = "#1f2937", "#2563eb", "#d1d5db"
SHARES = (0.5, 0.9, 0.99, 0.999, 1.0)
LABELS = ("p50", "p90", "p99", "p99.9", "longest")


def chart(results: list[Result], title: str) -> str:
    """The whole file. title: what was measured."""
    parts = []
    at = 34.0
    for result in results:
        draw = bars if result.name == "latency" else rates
        parts.append(f'<g transform="translate(0 {at:.0f})">{draw(result)}</g>')
        at += HEIGHT
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {at + 6:.0f}" width="{WIDTH}" '
            f'height="{at + 6:.0f}" font-family="system-ui, sans-serif" font-size="12" fill="{INK}">\n'
            f'<rect width="100%" height="100%" fill="white"/>\n<text x="16" y="24">{escape(title)}</text>\n'
            + "\n".join(parts) + "\n</svg>\n")


def rates(result: Result) -> str:
    """A line of messages a second over time."""
    # The last interval is not a whole one.
    values = [count / SAMPLE_S for count in result.samples[:-1] or result.samples]
    highest = nice(max(values, default=0.0))
    parts = [heading(f"{result.name}: {result.rate:,.0f} messages a second"), *scale(highest, number)]
    step = (WIDTH - LEFT - RIGHT) / max(len(values) - 1, 1)
    points = " ".join(f"{LEFT + step * at:.1f},{y(value, highest):.1f}" for at, value in enumerate(values))
    parts.append(f'<polyline points="{points}" fill="none" stroke="{LINE}" stroke-width="2"/>')
    seconds = len(values) * SAMPLE_S
    for share in (0.0, 0.5, 1.0):
        parts.append(label(LEFT + (WIDTH - LEFT - RIGHT) * share, f"{seconds * share:.1f} s"))
    return "".join(parts)


def bars(result: Result) -> str:
    """A bar for each percentile."""
    values = [result.at(share) * 1e6 for share in SHARES]
    highest = nice(max(values))
    parts = [heading(f"latency at {result.rate:,.0f} messages a second, from PUB to delivery"),
             *scale(highest, microseconds)]
    slot = (WIDTH - LEFT - RIGHT) / len(values)
    for at, (value, name) in enumerate(zip(values, LABELS, strict=True)):
        top = y(value, highest)
        x = LEFT + slot * (at + 0.2)
        parts.append(f'<rect x="{x:.1f}" y="{top:.1f}" width="{slot * 0.6:.1f}" height="{HEIGHT - BOTTOM - top:.1f}" '
                     f'fill="{LINE}"/>')
        middle = x + slot * 0.3
        parts.append(f'<text x="{middle:.1f}" y="{top - 4:.1f}" text-anchor="middle">{microseconds(value)}</text>')
        parts.append(label(middle, name))
    return "".join(parts)


def heading(text: str) -> str:
    """Above a drawing."""
    return f'<text x="16" y="20" font-weight="600">{escape(text)}</text>'


def label(x: float, text: str) -> str:
    """Below it."""
    return f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{escape(text)}</text>'


def scale(highest: float, text: Callable[[float], str]) -> list[str]:
    """Lines from zero to the highest value."""
    parts = []
    for quarter in range(5):
        value = highest * quarter / 4
        at = y(value, highest)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="{FAINT}"/>'
                     f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{text(value)}</text>')
    return parts


def y(value: float, highest: float) -> float:
    """Where a value is."""
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / highest)


def nice(value: float) -> float:
    """The next round number."""
    if value <= 0:
        return 1.0
    unit: float = 10.0 ** math.floor(math.log10(value))
    return next(step * unit for step in (1, 2, 4, 6, 8, 10) if value <= step * unit)


def number(value: float) -> str:
    """1.5M."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def microseconds(value: float) -> str:
    """A time."""
    return f"{value / 1000:.3g} ms" if value >= 1000 else f"{value:.3g} us"
