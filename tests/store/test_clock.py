"""The clock of a daemon: both times stand still until they are read again."""

import time

from nsqc.store.memory import Clock
from tests.compiled import memory as seen


def test_time_stands_still_between_refreshes():
    before = time.time_ns(), time.monotonic_ns()
    clock = Clock()
    first = seen.read(clock)
    after = time.time_ns(), time.monotonic_ns()
    assert before[1] <= first[1] <= after[1]
    assert min(before[0], after[0]) - 10**9 <= first[0] <= max(before[0], after[0]) + 10**9
    assert seen.read(clock) == first
    seen.refresh(clock)
    assert seen.read(clock)[1] >= after[1]
