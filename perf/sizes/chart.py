"""The chart of the README: `python -m perf.sizes.chart RESULTS.json docs/` writes chart-light.svg and chart-dark.svg.

RESULTS.json comes from `python -m perf.sizes.run --json RESULTS.json --nsqd PATH`. One cell for each size and kind of
work; its bars share a scale, the longest fills the cell. Only measured sides are drawn.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path

SIDES = {"nsqc": "nsqc", "floor": "floor*", "nsqd": "nsqd 1.3.0"}
WORK = {"publish": "publish", "consume": "consume with FIN", "steady": "both at once"}
LEFT, TOP, CELL, GAP, BAR, ROW = 70, 66, 214, 22, 14, 62
LABEL = 66      # room for a bar's number after it
WIDTH = LEFT + len(WORK) * (CELL + GAP)
FONT = "font-family=\"system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif\""


@dataclass(frozen=True)
class Theme:
    """Colours of one version of the chart."""

    name: str
    paper: str
    ink: str
    faint: str
    bars: dict[str, str]


THEMES = (
    Theme("light", "#ffffff", "#1f2328", "#59636e", {"nsqc": "#0969da", "floor": "#d0d7de", "nsqd": "#8c959f"}),
    Theme("dark", "#0d1117", "#e6edf3", "#9198a1", {"nsqc": "#4493f8", "floor": "#30363d", "nsqd": "#6e7681"}),
)


def size_text(size: int) -> str:
    """A size of bodies in B or KB."""
    return f"{size} B" if size < 1000 else f"{round(size / 1024)} KB"


def rate_text(rate: float) -> str:
    """Messages a second with two or three significant digits."""
    for unit, name in ((1e6, "M"), (1e3, "k")):
        if rate >= unit:
            return f"{rate / unit:.{1 if rate < 100 * unit else 0}f} {name}/s"
    return f"{rate:.0f}/s"


def middles(rounds: list[dict], work: str) -> dict[str, float]:
    """The median rate of each measured side."""
    return {side: statistics.median(done[side][work] for done in rounds) for side in SIDES if side in rounds[0]}


def text(x: float, y: float, words: str, fill: str, size: int = 12, more: str = "") -> str:
    """A text element; y is its base line."""
    return f'<text x="{x:g}" y="{y:g}" fill="{fill}" font-size="{size}" {more}>{escape(words)}</text>'


def cell(x: float, y: float, rates: dict[str, float], theme: Theme) -> list[str]:
    """The bars of one size and kind of work."""
    most, parts = max(rates.values()), []
    for at, (side, rate) in enumerate(rates.items()):
        width = max(1.0, (CELL - LABEL) * rate / most)
        top = y + at * (BAR + 3)
        parts.append(f'<rect x="{x:g}" y="{top:g}" width="{width:.1f}" height="{BAR}" rx="2" '
                     f'fill="{theme.bars[side]}"/>')
        weight = 'font-weight="600"' if side == "nsqc" else ""
        parts.append(text(x + width + 6, top + BAR - 3, rate_text(rate), theme.ink if side == "nsqc" else theme.faint,
                          11, weight))
    return parts


def draw(results: dict, theme: Theme) -> str:
    """The chart as SVG."""
    sizes = {int(size): rounds for size, rounds in results["sizes"].items()}
    rounds = len(next(iter(sizes.values())))
    height = TOP + len(sizes) * ROW + 52
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-labelledby="title" '
             f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" {FONT}>',
             '<title id="title">Messages a second by size of body: nsqc, a copying floor, nsqd</title>',
             f'<rect width="{WIDTH}" height="{height}" fill="{theme.paper}"/>']
    x = LEFT
    for side, name in SIDES.items():
        if side in next(iter(sizes.values()))[0]:
            parts += [f'<rect x="{x:g}" y="12" width="12" height="12" rx="2" fill="{theme.bars[side]}"/>',
                      text(x + 18, 22, name, theme.ink, 12, 'font-weight="600"' if side == "nsqc" else "")]
            x += 34 + 8 * len(name)
    parts.append(text(WIDTH - GAP, 22, "messages a second, more is better", theme.faint, 12, 'text-anchor="end"'))
    for at, title in enumerate(WORK.values()):
        parts.append(text(LEFT + at * (CELL + GAP), TOP - 14, title, theme.ink, 13, 'font-weight="600"'))
    for row, (size, done) in enumerate(sizes.items()):
        y = TOP + row * ROW
        parts.append(text(LEFT - 12, y + 1.5 * BAR + 6, size_text(size), theme.ink, 13,
                          'text-anchor="end" font-weight="600"'))
        for at, work in enumerate(WORK):
            parts += cell(LEFT + at * (CELL + GAP), y, middles(done, work), theme)
    foot = height - 34
    floor = "* one core that does nothing but copy each body once into memory of its own and send it from there"
    machine = results["machine"].split(", load average")[0]
    how = f"Medians of {rounds} round{'s' * (rounds > 1)}, alternating, over loopback. {machine}"
    parts += [text(LEFT, foot, floor, theme.faint, 11), text(LEFT, foot + 17, how, theme.faint, 11), "</svg>"]
    return "\n".join(parts) + "\n"


def main() -> int:
    """Writes both files."""
    parser = argparse.ArgumentParser(prog="python -m perf.sizes.chart", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    results = json.loads(args.results.read_text())
    for theme in THEMES:
        (args.folder / f"chart-{theme.name}.svg").write_text(draw(results, theme))
    return 0


if __name__ == "__main__":
    sys.exit(main())
