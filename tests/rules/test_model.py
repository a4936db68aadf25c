"""A channel with random delivery rules and a plain Python model of it, driven by the same random steps over sockets.

Times in the model are short or long: what is short has passed when /stats shows its effect, and what is long never passes
within a test. The model says which messages wait, are in flight, or wait for a long delay, with how many attempts; the
order of delivery is not promised.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.rules.support import publish, set_rule, subscribe, until_channel
from tests.support.daemon import Client, Daemon, Message

LONG = "20m"
EXAMPLES, STEPS = 12, 30
KEYS = ("requeue_delay", "requeue_on_disconnect", "max_in_flight", "max_attempts")


@dataclass
class Consumer:
    """A client with what is in flight to it."""

    client: Client
    rdy: int
    flying: dict[bytes, Message] = field(default_factory=dict)     # by body


class Model:
    """What the channel has: attempts by body."""

    def __init__(self) -> None:
        self.waiting: dict[bytes, int] = {}
        self.delayed: dict[bytes, int] = {}
        self.lost: dict[bytes, int] = {}        # in flight to consumers that are gone
        self.requeues = 0
        self.delays = False
        self.returns = False
        self.limit = 0
        self.most = 0                           # attempts
        self.dead = 0                           # messages in the dead-letter topic

    def fail(self, body: bytes, attempts: int) -> None:
        """A delivery is requeued with 0."""
        self.requeues += 1
        if 0 < self.most <= attempts:
            self.dead += 1
        else:
            (self.delayed if self.delays else self.waiting)[body] = attempts

    def come_back(self, flying: dict[bytes, int]) -> None:
        """The deliveries of a lost connection are requeued."""
        self.requeues += len(flying)
        for body, attempts in flying.items():
            if 0 < self.most <= attempts:
                self.dead += 1
            else:
                self.waiting[body] = attempts


def machine(node: Daemon, topics: list[int]) -> type[RuleBasedStateMachine]:
    """The state machine over one daemon; each example has a topic of its own."""

    class Machine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            topics[0] += 1
            self.topic = f"t{topics[0]}"
            self.model = Model()
            self.consumers: list[Consumer] = []
            self.published = 0

        @initialize()
        def create(self) -> None:
            node.post(f"/topic/create?topic={self.topic}")
            node.post(f"/channel/create?topic={self.topic}&channel=c")

        # ---------------------------------------------------------------- steps

        @rule(key=st.sampled_from(KEYS), on=st.booleans(), limit=st.integers(1, 4))
        def change_rule(self, key: str, on: bool, limit: int) -> None:
            if key == "max_attempts":       # what waits has attempts left: else it goes when a consumer would get it
                limit = max(limit, *(1 + attempts for attempts in (0, *self.model.waiting.values())))
            values = {"requeue_delay": LONG, "requeue_on_disconnect": True, "max_in_flight": limit, "max_attempts": limit}
            set_rule(node, self.topic, "c", **{key: values[key] if on else None})
            if key == "requeue_delay":
                self.model.delays = on
            elif key == "requeue_on_disconnect":
                self.model.returns = on
            elif key == "max_attempts":
                self.model.most = limit if on else 0
            else:
                self.model.limit = limit if on else 0

        @rule(count=st.integers(1, 5))
        def publish(self, count: int) -> None:
            bodies = [b"%d" % number for number in range(self.published, self.published + count)]
            self.published += count
            publish(node, self.topic, *bodies)
            self.model.waiting.update(dict.fromkeys(bodies, 0))

        @precondition(lambda self: len(self.consumers) < 3)
        @rule(rdy=st.integers(0, 4))
        def connect(self, rdy: int) -> None:
            self.consumers.append(Consumer(subscribe(node, self.topic, rdy=rdy), rdy))

        @precondition(lambda self: self.consumers)
        @rule(data=st.data(), rdy=st.integers(0, 4))
        def change_rdy(self, data, rdy: int) -> None:
            consumer = data.draw(st.sampled_from(self.consumers))
            consumer.client.command(f"RDY {rdy}")
            consumer.rdy = rdy
            self.barrier(consumer)

        @precondition(lambda self: any(consumer.flying for consumer in self.consumers))
        @rule(data=st.data(), verb=st.sampled_from(["FIN", "REQ"]))
        def answer(self, data, verb: str) -> None:
            consumer = data.draw(st.sampled_from([one for one in self.consumers if one.flying]))
            message = consumer.flying.pop(data.draw(st.sampled_from(sorted(consumer.flying))))
            consumer.client.command(f"{verb} {message.id.decode()}" + (" 0" if verb == "REQ" else ""))
            if verb == "REQ":
                self.model.fail(message.body, message.attempts)
            self.barrier(consumer)

        @precondition(lambda self: self.consumers)
        @rule(data=st.data())
        def lose(self, data) -> None:
            consumer = self.consumers.pop(data.draw(st.integers(0, len(self.consumers) - 1)))
            consumer.client.close()
            flying = {body: message.attempts for body, message in consumer.flying.items()}
            if self.model.returns:
                self.model.come_back(flying)
            else:
                self.model.lost.update(flying)
            until_channel(node, self.topic, client_count=len(self.consumers), requeue_count=self.model.requeues)

        @rule()
        def empty(self) -> None:
            node.post(f"/channel/empty?topic={self.topic}&channel=c")
            self.model.waiting, self.model.delayed, self.model.lost = {}, {}, {}
            for consumer in self.consumers:
                consumer.flying = {}

        # ---------------------------------------------------------------- what follows from them

        def barrier(self, consumer: Consumer) -> None:
            """The daemon has run all commands of a client: an error that needs no state is answered."""
            consumer.client.command("PUB barriers#ephemeral", b"x")
            while True:
                kind, data = consumer.client.frame()
                if kind == 2:
                    self.delivered(consumer, Message(data))
                else:
                    assert data == b"OK", data
                    return

        def delivered(self, consumer: Consumer, message: Message) -> None:
            before = self.model.waiting.pop(message.body)
            assert message.attempts == before + 1, message
            assert message.body not in consumer.flying
            consumer.flying[message.body] = message

        def in_flight(self) -> int:
            return sum(len(consumer.flying) for consumer in self.consumers) + len(self.model.lost)

        def room(self) -> int:
            """How many more messages may be in flight."""
            room = sum(max(consumer.rdy - len(consumer.flying), 0) for consumer in self.consumers)
            return room if self.model.limit == 0 else min(room, max(self.model.limit - self.in_flight(), 0))

        @invariant()
        def agrees(self) -> None:
            due = min(self.room(), len(self.model.waiting))
            wanted = {"in_flight_count": self.in_flight() + due, "depth": len(self.model.waiting) - due,
                      "deferred_count": len(self.model.delayed), "requeue_count": self.model.requeues,
                      "dead_letter_count": self.model.dead}
            until_channel(node, self.topic, **wanted)
            for consumer in self.consumers:
                self.barrier(consumer)
            assert self.room() == 0 or not self.model.waiting

        def teardown(self) -> None:
            for consumer in self.consumers:
                consumer.client.close()
            node.post(f"/topic/delete?topic={self.topic}")
            if self.model.dead:
                node.post(f"/topic/delete?topic={self.topic}.dead")

    return Machine


@pytest.mark.parametrize("storage", ["memory", "log"])
def test_a_channel_agrees_with_the_model(daemon, storage):
    node = daemon(f"--topic-storage={storage}", "--msg-timeout=10m", "--max-msg-timeout=15m")
    run_state_machine_as_test(machine(node, [0]), settings=settings(
        max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None, database=None,
        suppress_health_check=list(HealthCheck), phases=[Phase.generate, Phase.shrink]))
