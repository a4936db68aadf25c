"""Deliveries: their memory is reused, and no trace of an earlier one remains."""

from nsqc.store import message
from tests.compiled.memory import Deliveries


def test_counts_and_fresh_fields():
    before = message.deliveries_alive()
    stack = Deliveries()
    for attempts in (1, 2, 65535):
        assert stack.add(b"body", attempts) == (0, attempts, False)
    assert message.deliveries_alive() == before + 3
    stack.drop()
    assert stack.add(b"again", 4) == (0, 4, False), "the owner of the one before is gone"
    assert stack.take() == b"again"
    del stack
    assert message.deliveries_alive() == before


def test_more_than_are_kept_for_reuse():
    before, stack = message.deliveries_alive(), Deliveries()
    for _ in range(2):
        for number in range(20_000):
            stack.add(b"%d" % number, 1)
        assert message.deliveries_alive() == before + 20_000
        for number in reversed(range(20_000)):
            assert stack.take() == b"%d" % number
        assert message.deliveries_alive() == before
