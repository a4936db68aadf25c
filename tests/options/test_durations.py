"""Durations in Go's form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqc.options.option import LARGEST, format_duration, parse_duration


@pytest.mark.parametrize("text, nanoseconds", [
    ("250ms", 250 * 10**6), ("1h30m", 5400 * 10**9), ("-1.5h", -5400 * 10**9), ("0", 0), ("-0", 0), ("+0", 0),
    ("2.5s", 25 * 10**8), ("1m30.5s", 905 * 10**8), ("10us", 10_000), ("10µs", 10_000), ("10μs", 10_000), ("1ns", 1),
    (".5s", 5 * 10**8), ("1.s", 10**9), ("+3m", 180 * 10**9), ("0s", 0), ("1m1m", 120 * 10**9), ("1s1h", 3601 * 10**9),
    ("0.5ns0.5ns", 0), ("1.9ns", 1), ("0.1s", 10**8), ("7d", 604800 * 10**9), ("1d12h", 129600 * 10**9), ("0.5d", 43200 * 10**9), ("0.3h", 1080 * 10**9), ("9223372036854775807ns", LARGEST),
])
def test_are_read(text, nanoseconds):
    assert parse_duration(text) == nanoseconds


@pytest.mark.parametrize("text", [
    "", "10", "ms", "1.s.s", "1h-5m", "5 s", " 5s", "5s ", "5s\n", "7w", "1y", "7D", "-", "+", "--1s", "+-1s", ".s", "1s1", "00", "1S", "1,5s",
    "٣s", "1e3s", "0x1s", "1_0s", "1" * 5000 + "s",
])
def test_what_is_none_is_refused(text):
    with pytest.raises(ValueError, match="is not a duration such as 250ms, 1h30m or 7d"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["9999999999h", "9223372036854775808ns", "-9223372036854775.809ms", "2562047h48m"])
def test_what_64_bits_cannot_hold_is_refused(text):
    with pytest.raises(ValueError, match="longer than a duration can be"):
        parse_duration(text)


@given(st.integers(-LARGEST, LARGEST))
def test_survive_the_round_trip(nanoseconds):
    assert parse_duration(format_duration(nanoseconds)) == nanoseconds


@pytest.mark.parametrize("nanoseconds, text", [
    (0, "0s"), (1, "1ns"), (999, "999ns"), (1000, "1µs"), (12_300, "12.3µs"), (250 * 10**6, "250ms"), (10**9, "1s"),
    (2_500_000_000, "2.5s"), (60 * 10**9, "1m0s"), (5400 * 10**9, "1h30m0s"), (3600 * 10**9 + 1, "1h0m0.000000001s"),
    (-1_500_000, "-1.5ms"), (-90 * 10**9, "-1m30s"), (LARGEST, "2562047h47m16.854775807s"),
])
def test_look_like_gos(nanoseconds, text):
    assert format_duration(nanoseconds) == text
