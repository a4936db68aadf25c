"""The memory queue against a deque, across block borders."""

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from tests.compiled.memory import MemoryQueue


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


def test_looking_takes_nothing_and_survives_pops():
    queue = MemoryQueue()
    place = queue.place()
    assert place.look() is None
    for number in range(2000):
        queue.push(b"%d" % number, number % 3)
    assert [place.look()[0] for _ in range(1000)] == [b"%d" % number for number in range(1000)]
    for number in range(700):
        assert queue.pop()[0] == b"%d" % number
    assert place.look()[0] == b"1000"
    for _ in range(800):
        queue.pop()
    # Its former successor is gone.
    assert place.look()[0] == b"1500"
    while queue.pop():
        pass
    assert place.look() is None
    queue.push(b"new")
    assert place.look() == (b"new", 1)
    assert len(queue) == 1


def test_a_long_way_takes_several_calls():
    queue = MemoryQueue()
    for number in range(100_000):
        queue.push(b"%d" % number)
    place = queue.place()
    place.move(99_999)
    body, calls = place.look()
    assert body == b"99999"
    assert calls > 2
