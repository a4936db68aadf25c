"""The records that are out, against a plain model."""

from hypothesis import given
from hypothesis import strategies as st

from nsqc.store.taken import TakenList

MOST_RECORDS = 65536
MOST_BYTES = 128 << 20


@given(st.lists(st.one_of(st.none(), st.integers(0, 300), st.just("clear")), max_size=600))
def test_the_oldest_that_is_out(steps):
    """None: a record is handed out; a number: the one that many before the newest is done with."""
    out, model, newest, at = TakenList(), {}, 0, 0
    for step in steps:
        if step is None:
            newest = out.add(at // 1000, at % 1000, 30)
            model[newest] = (at // 1000, at % 1000)
            at += 30
        elif step == "clear":
            out.clear()
            model.clear()
        else:
            before = min(model, default=None)
            model.pop(newest - step, None)
            assert out.done(newest - step) == (before is not None and min(model, default=None) != before)
        oldest = min(model, default=None)
        assert out.first() == model.get(oldest)
        assert len(out) == (0 if oldest is None else newest - oldest + 1)


def test_too_many_are_let_go_of():
    out = TakenList()
    serials = [out.add(0, at, 1) for at in range(MOST_RECORDS)]
    assert out.first() == (0, 0) and len(out) == MOST_RECORDS
    assert not out.done(serials[1])
    out.add(0, MOST_RECORDS, 1)
    assert out.first() == (0, 2), "the second one was done with"
    assert not out.done(serials[0])
    assert out.done(serials[2]) and out.first() == (0, 3)


def test_too_many_bytes_are_let_go_of():
    out = TakenList()
    for number in range(4):
        out.add(number, 0, MOST_BYTES // 2)
    assert out.first() == (2, 0)
