"""Sets of offsets and of waiting messages, beside plain Python ones."""

import itertools
import random

from hypothesis import given
from hypothesis import strategies as st

from tests.compiled.offsets import Offsets, WaitingMessages


def ranges_of(offsets: set[int]) -> list[tuple[int, int]]:
    """Maximal ranges."""
    found: list[tuple[int, int]] = []
    for offset in sorted(offsets):
        if found and found[-1][1] == offset:
            found[-1] = found[-1][0], offset + 1
        else:
            found.append((offset, offset + 1))
    return found


CHANGE = st.tuples(st.booleans(), st.integers(0, 120), st.integers(0, 40))


@given(st.lists(CHANGE, max_size=60))
def test_a_set_of_offsets_is_what_a_set_is(changes):
    offsets, model = Offsets(), set()
    for adds, first, count in changes:
        if adds:
            offsets.add(first, first + count)
            model |= set(range(first, first + count))
        else:
            offsets.remove(first, first + count)
            model -= set(range(first, first + count))
        assert offsets.ranges() == ranges_of(model)
        assert len(offsets) == len(model)
    assert [offset for offset in range(161) if offset in offsets] == sorted(model)
    assert offsets.ranges(60) == [(first, end) for first, end in ranges_of(model) if end > 60]


def test_many_blocks():
    """Several thousand ranges: blocks are split, emptied and removed, and reads cross them."""
    dice, offsets, model = random.Random(5), Offsets(), set()
    order = list(range(0, 40_000, 2))
    dice.shuffle(order)
    for offset in order:
        offsets.add(offset, offset + 1)
    model.update(order)
    assert offsets.ranges() == [(offset, offset + 1) for offset in sorted(model)]
    for _ in range(3000):
        first = dice.randrange(40_000)
        end = first + dice.choice((1, 3, 50, 900))
        if dice.random() < 0.7:
            offsets.remove(first, end)
            model.difference_update(range(first, end))
        else:
            offsets.add(first, end)
            model.update(range(first, end))
        assert len(offsets) == len(model)
    assert offsets.ranges() == ranges_of(model)
    assert offsets.ranges(20_000) == [(first, end) for first, end in ranges_of(model) if end > 20_000]
    offsets.remove(0, 50_000)
    assert (len(offsets), offsets.ranges()) == (0, [])


def test_a_range_as_large_as_offsets_can_be():
    offsets = Offsets()
    offsets.add(0, 2**63 - 1)
    offsets.remove(2**62, 2**62 + 1)
    assert offsets.ranges() == [(0, 2**62), (2**62 + 1, 2**63 - 1)]
    assert len(offsets) == 2**63 - 2


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 50), st.integers(0, 9)), max_size=60))
def test_waiting_messages_are_what_a_dict_is(changes):
    waiting, model = WaitingMessages(), {}
    for puts, offset, number in changes:
        if puts:
            waiting.put(offset, number, number * 10**18)
            model[offset] = (number, number * 10**18)
        else:
            waiting.remove(offset, offset + number)
            model = {key: value for key, value in model.items() if not offset <= key < offset + number}
        assert waiting.entries() == [(key, *model[key]) for key in sorted(model)]
    assert [waiting.get(offset) for offset in range(60)] == [model.get(offset) for offset in range(60)]


def test_many_waiting_messages():
    dice, waiting = random.Random(6), WaitingMessages()
    offsets = dice.sample(range(100_000), 20_000)
    for offset in offsets:
        waiting.put(offset, 2, offset)
    assert waiting.entries() == [(offset, 2, offset) for offset in sorted(offsets)]
    for first in range(0, 100_000, 1000):
        waiting.remove(first, first + 500)
    left = [offset for offset in sorted(offsets) if offset % 1000 >= 500]
    assert waiting.entries(30_000) == [(offset, 2, offset) for offset in itertools.dropwhile(lambda at: at < 30_000, left)]
