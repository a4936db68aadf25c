"""The deadline heap against a plain dict."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.compiled.memory import DeadlineHeap

deadlines = st.integers(0, 50) | st.integers(-(2**62), 2**62)


class HeapModel(RuleBasedStateMachine):
    @initialize()
    def start(self):
        self.heap = DeadlineHeap()
        self.model = {}
        self.next = 0

    @rule(deadline=deadlines)
    def push(self, deadline):
        if self.next < 65536:
            self.heap.push(self.next, deadline)
            self.model[self.next] = deadline
            self.next += 1

    @rule(data=st.data())
    def remove(self, data):
        if self.model:
            number = data.draw(st.sampled_from(sorted(self.model)))
            self.heap.remove(number)
            del self.model[number]

    @rule(data=st.data(), deadline=deadlines)
    def move(self, data, deadline):
        if self.model:
            number = data.draw(st.sampled_from(sorted(self.model)))
            self.heap.move(number, deadline)
            self.model[number] = deadline

    @rule()
    def pop(self):
        found = self.heap.pop()
        if not self.model:
            assert found is None
        else:
            number, deadline = found
            assert deadline == self.model.pop(number)
            assert all(deadline <= other for other in self.model.values())

    @invariant()
    def in_order(self):
        assert len(self.heap) == len(self.model)
        assert self.heap.check()


HeapModel.TestCase.settings = settings(stateful_step_count=60, max_examples=60, deadline=None)
TestHeap = HeapModel.TestCase


def test_sorts_many():
    heap = DeadlineHeap()
    for number in range(20_000):
        heap.push(number, number * 7919 % 20_011)
    assert heap.check()
    popped = [heap.pop()[1] for _ in range(20_000)]
    assert popped == sorted(popped)
    assert heap.pop() is None
