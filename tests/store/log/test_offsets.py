"""Sets of offsets, compared with plain Python ones."""

import random

from hypothesis import given
from hypothesis import strategies as st

from tests.compiled.logs import Offsets

PLAIN = (-1, 0)  # attempts and due time of offsets that are only added


def ranges_of(model: dict[int, tuple[int, int]]) -> list[tuple[int, int, int, int]]:
    """Maximal ranges with the same attempts and due time."""
    found: list[tuple[int, int, int, int]] = []
    for offset, its in sorted(model.items()):
        if found and found[-1][1:] == (offset, *its):
            found[-1] = found[-1][0], offset + 1, *its
        else:
            found.append((offset, offset + 1, *its))
    return found


CHANGE = st.tuples(st.sampled_from(["add", "put", "remove"]), st.integers(0, 120), st.integers(0, 40), st.integers(0, 2))


@given(st.lists(CHANGE, max_size=60))
def test_a_set_of_offsets_is_what_a_dict_is(changes):
    offsets, model = Offsets(), {}
    for kind, first, count, attempts in changes:
        span = range(first, first + count)
        if kind == "remove":
            offsets.remove(first, first + count)
            model = {offset: its for offset, its in model.items() if offset not in span}
        elif kind == "add":
            offsets.add(first, first + count)
            model |= dict.fromkeys(span, PLAIN)
        else:
            offsets.put(first, first + count, attempts, 7)
            model |= dict.fromkeys(span, (attempts, 7))
        assert offsets.ranges() == ranges_of(model)
    assert [offset for offset in range(161) if offset in offsets] == sorted(model)
    assert offsets.ranges(60) == [its for its in ranges_of(model) if its[1] > 60]


def test_many_blocks():
    """Several thousand ranges: blocks are split, emptied and removed, and reads cross them."""
    dice, offsets = random.Random(5), Offsets()
    order = list(range(0, 40_000, 2))
    dice.shuffle(order)
    for offset in order:
        offsets.add(offset, offset + 1)
    model = dict.fromkeys(order, PLAIN)
    assert offsets.ranges() == ranges_of(model)
    for _ in range(3000):
        first = dice.randrange(40_000)
        end = first + dice.choice((1, 3, 50, 900))
        if dice.random() < 0.7:
            offsets.remove(first, end)
            for offset in range(first, end):
                model.pop(offset, None)
        else:
            offsets.put(first, end, 3, 0)
            model.update(dict.fromkeys(range(first, end), (3, 0)))
    assert offsets.ranges() == ranges_of(model)
    assert offsets.ranges(20_000) == [its for its in ranges_of(model) if its[1] > 20_000]
    offsets.remove(0, 50_000)
    assert offsets.ranges() == []


def test_a_range_as_large_as_offsets_can_be():
    offsets = Offsets()
    offsets.add(0, 2**63 - 1)
    offsets.remove(2**62, 2**62 + 1)
    assert offsets.ranges() == [(0, 2**62, -1, 0), (2**62 + 1, 2**63 - 1, -1, 0)]
