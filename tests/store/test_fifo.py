"""The memory queue against a deque, across block borders."""

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from tests.compiled.fifo import MemoryQueue


@given(st.lists(st.integers(-600, 600), max_size=12))
def test_like_a_deque(steps):
    queue, model, made = MemoryQueue(), deque(), 0
    for step in steps:
        for _ in range(step):
            item = (b"%d" % made, made % 7, made % 3)
            queue.push(*item)
            model.append(item)
            made += 1
        for _ in range(-step):
            assert queue.pop() == (model.popleft() if model else None)
        assert len(queue) == len(model)
    while model:
        assert queue.pop() == model.popleft()
    assert queue.pop() is None


def test_clear_then_reuse():
    queue = MemoryQueue()
    for _ in range(1000):
        queue.push(b"x")
    queue.clear()
    assert queue.pop() is None
    queue.push(b"y", 2, 3)
    assert queue.pop() == (b"y", 2, 3)
