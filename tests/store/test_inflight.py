"""The in-flight map against a plain list."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.compiled.memory import InFlightTable

ids = st.integers(0, 300).map(lambda n: b"%016x" % (n * 0x1000193))
owners = st.integers(1, 3)


class InFlightModel(RuleBasedStateMachine):
    @initialize()
    def start(self):
        self.table = InFlightTable()
        self.model = []

    @rule(message_id=ids, owner=owners)
    def add(self, message_id, owner):
        self.table.add(message_id, owner)
        self.model.append((message_id, owner))

    @rule(message_id=ids, owner=owners)
    def find(self, message_id, owner):
        having = {of for known, of in self.model if known == message_id}
        found = self.table.find(message_id, owner)
        assert found == owner if owner in having else found in (having or {None})

    @rule(message_id=ids, owner=owners)
    def remove(self, message_id, owner):
        known = (message_id, owner) in self.model
        assert self.table.remove(message_id, owner) == known
        if known:
            self.model.remove((message_id, owner))

    @rule(data=st.data())
    def remove_known(self, data):
        if self.model:
            self.remove(*data.draw(st.sampled_from(self.model)))

    @invariant()
    def counts(self):
        assert len(self.table) == len(self.model)


InFlightModel.TestCase.settings = settings(stateful_step_count=80, max_examples=60, deadline=None)
TestInFlightMap = InFlightModel.TestCase


def test_grows_and_shrinks():
    table = InFlightTable()
    many = [b"%016x" % (n << 12) for n in range(50_000)]
    for one in many:
        table.add(one, 1)
    for one in many[::-1]:
        assert table.find(one, 1) == 1
        assert table.remove(one, 1)
    assert len(table) == 0
    assert table.find(many[0], 1) is None
