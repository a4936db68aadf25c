"""The unacknowledged records, compared with a plain model."""

from hypothesis import given
from hypothesis import strategies as st

from nsqc.store import message
from tests.compiled.memory import UnackedList

MOST_BYTES = 1 << 30


@given(st.lists(st.one_of(st.none(), st.integers(0, 300)), max_size=600))
def test_the_oldest_that_is_out(steps):
    """None: a record is handed out; a number: the one that many before the newest is acknowledged."""
    out, model, newest, at = UnackedList(), {}, -1, 0
    for step in steps:
        if step is None:
            newest = out.add(at // 1000, at % 1000, 30)
            model[newest] = (at // 1000, at % 1000)
            at += 30
        elif newest - step in model:
            before = min(model)
            del model[newest - step]
            assert out.done(newest - step) == (min(model, default=None) != before)
        oldest = min(model, default=None)
        assert out.first() == model.get(oldest)
        assert len(out) == (0 if oldest is None else newest - oldest + 1)


def test_what_is_out_costs_nothing_for_what_is_done():
    out, before = UnackedList(), message.places_alive()
    stuck = out.add(0, 0, 30)
    for at in range(1, 100_000):
        out.done(out.add(0, 30 * at, 30))
    assert (len(out), out.first(), message.places_alive()) == (100_000, (0, 0), before + 1)
    assert out.done(stuck) and out.first() is None and message.places_alive() == before


def test_too_many_bytes_are_let_go_of():
    out = UnackedList()
    serials = [out.add(number, 0, MOST_BYTES // 2) for number in range(4)]
    assert out.first() == (2, 0)
    assert not out.done(serials[0]), "its holder still ends it"
    assert out.done(serials[2]) and out.first() == (3, 0)


def test_places_outlive_a_queue_that_is_emptied():
    out, before = UnackedList(), message.places_alive()
    serials = [out.add(0, at, 1) for at in range(3)]
    out.drop()
    assert out.first() is None and len(out) == 0
    later = out.add(1, 0, 1)
    assert not out.done(serials[1])
    assert out.first() == (1, 0) and out.done(later)
    del out
    assert message.places_alive() == before
