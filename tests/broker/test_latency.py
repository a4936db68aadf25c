"""Latency windows compared with sorting."""

import math

from hypothesis import given
from hypothesis import strategies as st

from nsqc.broker.figures import LatencyWindow

QUANTILES = [1.0, 0.99, 0.5]


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=200), st.integers(1, 3))
def test_within_two_per_cent_of_sorting(values, parts):
    windows = [LatencyWindow(QUANTILES, 3600 * 10**9) for _ in range(parts)]
    for number, value in enumerate(values):
        windows[number % parts].add(value)
    count, found = LatencyWindow.result(windows)
    assert count == len(values)
    for quantile, value in found:
        exact = sorted(values)[max(1, math.ceil(quantile * len(values))) - 1]
        assert abs(value - exact) <= exact * 0.02 + 1


def test_old_halves_are_dropped():
    window = LatencyWindow([0.5], 2)  # half of it is one nanosecond: every add rotates it
    for _ in range(10):
        window.add(100)
    assert LatencyWindow.result([window])[0] <= 1


def test_nothing_yet():
    assert LatencyWindow.result([LatencyWindow([0.5], 10**9)]) == (0, [(0.5, 0.0)])
    assert LatencyWindow.result([]) == (0, [])


def test_clock_that_went_back_counts_as_no_time():
    window = LatencyWindow([1.0], 10**12)
    window.add(-5)
    assert LatencyWindow.result([window]) == (1, [(1.0, 0.0)])
