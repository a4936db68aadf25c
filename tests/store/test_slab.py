"""Memory of messages: pieces of any sizes never overlap, and all memory is returned."""

import random

import pytest

from nsqc.store import memory
from tests.compiled.memory import MemoryQueue
from tests.support.daemon import wait_until

MIB = 1024 * 1024


def body_of(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size)


def edges() -> list[int]:
    """Sizes of bodies around those where a class of pieces ends: its own and its neighbours'."""
    room, head = 2 * MIB - 64, 32
    ends = [*range(40, 257, 8), *range(256, 2049, 32), *(room // pieces & ~7 for pieces in range(16, 1025))]
    return sorted({end - head + step for end in ends for step in (-1, 0, 1)})


def test_every_size_up_to_the_largest_and_beyond():
    queue, sizes = MemoryQueue(), [*edges(), 200_000, 262_144, MIB, 5 * MIB]
    order = sizes * 2
    random.Random(1).shuffle(order)
    for number, size in enumerate(order):
        queue.push(body_of(size, number))
    for number, size in enumerate(order):
        assert queue.pop()[0] == body_of(size, number)


@pytest.mark.parametrize("size", [100, 5000, 65_536, 131_040, 131_041, 300_000])
def test_what_a_queue_took_goes_back(size):
    before = memory.held_bytes()
    queue, body = MemoryQueue(), bytes(size)
    count = 100 * MIB // size
    for _ in range(count):
        queue.push(body)
    full = memory.held_bytes() - before
    assert full <= 1.15 * count * (size + 30) + 3 * MIB
    for _ in range(count):
        queue.pop()
    # A thread releases memory that has been free for some seconds.
    wait_until(lambda: memory.held_bytes() - before <= 32 * MIB, "the memory is released")


def test_a_queue_that_goes_up_and_down():
    queue, dice, waiting = MemoryQueue(), random.Random(2), []
    for number in range(20_000):
        if waiting and dice.random() < 0.49:
            size, seed, attempts = waiting.pop(0)
            assert queue.pop() == (body_of(size, seed), attempts, 0)
        else:
            size, attempts = int(2 ** dice.uniform(0, 15)), dice.choice((0, 0, 0, 1, 65_535))
            waiting.append((size, number, attempts))
            queue.push(body_of(size, number), attempts)
    for size, seed, attempts in waiting:
        assert queue.pop() == (body_of(size, seed), attempts, 0)
    assert queue.pop() is None
