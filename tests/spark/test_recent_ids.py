"""The set of ids against a plain Python model."""

from collections import OrderedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqc.spark.arrow import RecentIds


def ids(numbers) -> bytes:
    return b"".join(b"%016x" % number for number in numbers)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 20), st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(0, 40), max_size=10)), max_size=60))
def test_it_remembers_the_last_ones(capacity, steps):
    seen, model = RecentIds(capacity), OrderedDict()
    for node, numbers in steps:
        expected = []
        for number in numbers:
            expected.append((node, number) not in model)
            if expected[-1]:
                if len(model) == capacity:
                    model.popitem(last=False)
                model[node, number] = True
        assert list(seen.remember(ids(numbers), node)) == expected
        assert len(seen) == len(model)
        for asked in range(3):
            assert list(seen.known(ids(range(41)), asked)) == [(asked, number) in model for number in range(41)]


def test_half_an_id_is_refused():
    with pytest.raises(ValueError, match="16 bytes"):
        RecentIds(4).remember(b"abc", 0)


@pytest.mark.parametrize("capacity", [0, 1 << 27])
def test_senseless_capacities_are_refused(capacity):
    with pytest.raises(ValueError, match="capacity"):
        RecentIds(capacity)
