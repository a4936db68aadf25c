"""Results as one SVG: rates over time, and times by percentile."""

from __future__ import annotations

from html import escape

from nsqc.charts import Form, area, bars_in, lines_in, scale
from nsqc.tools.bench.load import SAMPLE_S, Result

FORM = Form("bench", 720, 186, 84, 24, 6)
HEAD, TOP, BELOW = 28, 34, 6
STYLE = """svg { font: 12px system-ui, sans-serif; fill: #1f2937 }
.grid { stroke: #d1d5db } .line { fill: none; stroke: #2563eb; stroke-width: 2 } .bar, .dot { fill: #2563eb }
.tick { fill: #4b5563 } .head { font-weight: 600 }"""
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "longest": 1.0}


def chart(results: list[Result], title: str) -> str:
    """The whole file. title: what was measured."""
    parts = []
    at = TOP
    for result in results:
        head, drawing = times(result) if result.name == "latency" else rates(result)
        parts.append(f'<text class="head" x="16" y="{at + 20}">{escape(head)}</text>'
                     f'<g transform="translate(0 {at + HEAD})">{drawing}</g>')
        at += HEAD + FORM.height
    high = at + BELOW
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {FORM.width} {high}" width="{FORM.width}" '
            f'height="{high}">\n<style>{STYLE}</style>\n<rect width="100%" height="100%" fill="white"/>\n'
            f'<text x="16" y="24">{escape(title)}</text>\n' + "\n".join(parts) + "\n</svg>\n")


def rates(result: Result) -> tuple[str, str]:
    """A line of messages per second over time, and its title."""
    # The last interval is incomplete.
    values = [count / SAMPLE_S for count in result.samples[:-1] or result.samples]
    labels = [f"{SAMPLE_S * (number + 1):.1f} s" for number in range(len(values))]
    drawing = lines_in(area(FORM, labels), labels, {"": values}, scale(max(values, default=0.0)), number_text)
    return f"{result.name}: {result.rate:,.0f} messages/s", drawing


def times(result: Result) -> tuple[str, str]:
    """A bar per percentile, and the title."""
    values = [result.at(share) * 1e6 for share in SHARES.values()]
    labels = [*SHARES]
    tips = [f"{name}: {microseconds(value)}" for name, value in zip(labels, values, strict=True)]
    drawing = bars_in(area(FORM, labels), labels, values, scale(max(values)), microseconds, tips)
    return f"latency at {result.rate:,.0f} messages/s, from PUB to delivery", drawing


def number_text(value: float) -> str:
    """1.5M."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def microseconds(value: float) -> str:
    """Formats a time."""
    return f"{value / 1000:.3g} ms" if value >= 1000 else f"{value:.3g} us"
