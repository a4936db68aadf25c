"""Windows of end-to-end latency (nsqc.broker.figures)."""

import random

from nsqc.broker.figures import LatencyWindow
from perf.micro import timing
from perf.micro.timing import Part, Row, Size

TITLE = "latency: nanoseconds a latency counted, or a question answered"
WINDOW_NS = 600 * 10**9
QUANTILES = [0.5, 0.95, 0.99]


def bench(size: Size) -> list[Row]:
    """Counting, and computing three quantiles."""
    many, dice = size.of(100_000), random.Random(7)
    values = [int(dice.lognormvariate(12, 2)) for _ in range(many)]
    asked = size.of(200)

    def add():
        window = LatencyWindow(QUANTILES, WINDOW_NS)
        return lambda: timing.exhaust(map(window.add, values))

    def ask():
        window = LatencyWindow(QUANTILES, WINDOW_NS)
        timing.exhaust(map(window.add, values))
        return lambda: [LatencyWindow.result([window]) for _ in range(asked)]

    def plain():
        found: dict[int, int] = {}
        return lambda: timing.exhaust(map(found.setdefault, values, values))

    reference = Part("dict.setdefault", plain, many)
    return [timing.compare(Part("add", add, many), reference, size),
            timing.compare(Part("result of three quantiles", ask, asked), reference, size)]


if __name__ == "__main__":
    timing.main(TITLE, bench)
