"""Message ids: unique, rising, true to node and time."""

from hypothesis import given
from hypothesis import strategies as st

from nsqc.store.message import GuidFactory
from tests.compiled.memory import next_id

EPOCH_UNITS = 1288834974288
NOW = 1_790_000_000_000_000_000


def unit_of(digits: bytes) -> int:
    return (int(digits, 16) >> 22) + EPOCH_UNITS


def test_parts():
    made = next_id(GuidFactory.make(517), NOW)
    assert len(made) == 16
    assert made == made.lower()
    assert unit_of(made) == NOW >> 20
    assert int(made, 16) >> 12 & 1023 == 517
    assert int(made, 16) & 4095 == 0


@given(st.integers(0, 2**63 - 1), st.integers(0, 1023))
def test_digits_are_those_of_the_number(wall_ns, node):
    number = ((wall_ns >> 20) - EPOCH_UNITS) << 22 | node << 12
    before = (wall_ns >> 20) - 1        # so that this unit is the next, whenever it is
    assert next_id(GuidFactory.make(node, before), wall_ns) == b"%016x" % (number % 2**64)


def test_a_full_unit_borrows_the_next():
    factory = GuidFactory.make(1)
    made = [next_id(factory, NOW) for _ in range(10_000)]
    assert made == sorted(set(made))
    assert unit_of(made[4095]) == NOW >> 20
    assert unit_of(made[4096]) == (NOW >> 20) + 1
    assert factory.reached == (NOW >> 20) + 2


@given(st.lists(st.integers(-10**12, 10**12), min_size=1, max_size=60))
def test_rises_whatever_the_clock_does(steps):
    factory, clock, made = GuidFactory.make(3), NOW, []
    for step in steps:
        clock += step
        made += [next_id(factory, clock), next_id(factory, clock)]
    assert made == sorted(set(made))


def test_goes_on_above_an_earlier_run():
    first = GuidFactory.make(9)
    last = max(next_id(first, NOW) for _ in range(9000))
    second = GuidFactory.make(9, first.reached)
    assert next_id(second, NOW - 10**12) > last


@given(st.lists(st.tuples(st.integers(-10**12, 10**13), st.booleans()), min_size=1, max_size=60))
def test_stays_within_its_bound_whatever_the_clock_does(steps):
    factory, clock, made = GuidFactory.make(3), NOW, []
    bound = (NOW >> 20) + 100
    factory.set_bound(bound, bound - 50)
    for step, raises in steps:
        clock += step
        made += [next_id(factory, clock) for _ in range(3)]
        assert unit_of(made[-1]) <= bound
        if raises and factory.is_low:
            bound = max(factory.reached, clock >> 20) + 100
            factory.set_bound(bound, bound - 50)
            made.append(next_id(factory, clock))
            assert unit_of(made[-1]) >= clock >> 20
    assert made == sorted(set(made))
