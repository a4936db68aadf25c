"""A channel with random delivery rules and a plain Python model of it, driven by the same random steps over sockets.

Times in the model are short or long: a short one has passed when /stats shows its effect, and a long one never passes
within a test. The model says which messages wait, are in flight, or wait for a long delay, and their attempts. The
order of delivery is not promised, except that a failed message in an ordered channel is the next one; nor is the choice
of messages removed from a channel that is too full: their number is read, and all must be accounted for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

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
from tests.support.daemon import Client, Daemon, Message, batch, wait_until

LONG = "20m"
EXAMPLES, STEPS = 12, 40
VALUES = {"requeue_delay": LONG, "requeue_on_disconnect": True, "max_in_flight": None, "max_attempts": None, "ordered": True,
          "rate": 200.0, "message_ttl": LONG, "max_depth": None}     # None: the limit that was drawn


@dataclass
class Consumer:
    """A client and its messages in flight."""

    client: Client
    rdy: int
    flying: dict[bytes, Message] = field(default_factory=dict)     # by body


class Model:
    """The channel's content: attempts by body. `dropped` messages of `waiting` are gone: which ones is not promised."""

    def __init__(self) -> None:
        self.rules: dict[str, Any] = {}
        self.waiting: dict[bytes, int] = {}
        self.dropped = 0
        self.front: dict[bytes, tuple[int, bool]] = {}  # of an ordered channel: attempts, and whether it is delayed
        self.delayed: dict[bytes, int] = {}
        self.lost: dict[bytes, int] = {}        # in flight to consumers that are gone
        self.finished = 0
        self.requeues = 0
        self.dead = 0                           # messages in the dead-letter topic
        self.overflows = 0
        self.expired = 0

    def fail(self, body: bytes, attempts: int, delays: bool = True) -> None:
        """A delivery comes back."""
        self.requeues += 1
        delays &= "requeue_delay" in self.rules
        if 0 < self.rules.get("max_attempts", 0) <= attempts:
            self.dead += 1
        elif "ordered" in self.rules:
            self.front[body] = attempts, delays
        else:
            (self.delayed if delays else self.waiting)[body] = attempts

    def take(self, body: bytes) -> int:
        """A message is delivered; returns its attempts so far."""
        if not self.front:
            return self.waiting.pop(body)
        attempts, delays = self.front.pop(body)
        assert not (delays and "ordered" in self.rules), "delivered before its delay was over"
        return attempts

    def overflowed(self, count: int) -> None:
        """This many more messages exceeded the limit."""
        assert count == 0 or ("max_depth" in self.rules and self.rules.get("overflow", "refuse") != "refuse")
        self.overflows += count
        self.dropped += count
        if self.rules.get("overflow") == "dead-letter":
            self.dead += count
        assert self.dropped <= len(self.waiting)
        if self.dropped == len(self.waiting):
            self.waiting, self.dropped = {}, 0

    def expire(self) -> None:
        """All waiting messages have expired."""
        count = len(self.waiting) - self.dropped + len(self.front)
        self.expired += count
        if self.rules.get("expired") == "dead-letter":
            self.dead += count
        self.waiting, self.dropped, self.front = {}, 0, {}

    def goes_out(self, room: int) -> int:
        """The number of waiting messages to deliver, given room."""
        if self.front and "ordered" in self.rules:
            return min(room, sum(not delays for _, delays in self.front.values()))
        return min(room, len(self.waiting) - self.dropped + len(self.front))

    def depth(self) -> int:
        """The value of that name in /stats."""
        return len(self.waiting) - self.dropped + sum(not delays for _, delays in self.front.values())

    def deferred(self) -> int:
        """The value of that name in /stats."""
        return len(self.delayed) + sum(delays for _, delays in self.front.values())

    def left(self) -> int:
        """The channel's messages, except those in flight."""
        return self.depth() + self.deferred()


def machine(node: Daemon, topics: list[int]) -> type[RuleBasedStateMachine]:
    """The state machine over one daemon; each example has its own topic."""

    class Machine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            topics[0] += 1
            self.topic = f"t{topics[0]}"
            self.model = Model()
            self.consumers: list[Consumer] = []
            self.published = 0
            self.emptied = 0
            self.moved = 0          # dead letters that did not fail

        @initialize()
        def create(self) -> None:
            node.post(f"/topic/create?topic={self.topic}")
            node.post(f"/channel/create?topic={self.topic}&channel=c")

        # ---------------------------------------------------------------- steps

        @rule(key=st.sampled_from(sorted(VALUES)), on=st.booleans(), limit=st.integers(1, 4))
        def change_rule(self, key: str, on: bool, limit: int) -> None:
            if key == "max_attempts":       # waiting messages have attempts left, or would move on delivery
                waiting = [*self.model.waiting.values(), *(attempts for attempts, _ in self.model.front.values())]
                limit = max(limit, *(1 + attempts for attempts in (0, *waiting)))
            self.set(key, (VALUES[key] or limit) if on else None)

        @rule(overflow=st.sampled_from(["refuse", "drop-oldest", "dead-letter"]))
        def change_overflow(self, overflow: str) -> None:
            self.set("overflow", overflow)

        @rule(expired=st.sampled_from(["drop", "dead-letter"]))
        def change_expired(self, expired: str) -> None:
            self.set("expired", expired)

        def set(self, key: str, value: object) -> None:
            set_rule(node, self.topic, "c", **{key: value})
            self.model.rules.pop(key, None)
            if value is not None:
                self.model.rules[key] = value

        @rule()
        def expire(self) -> None:
            """No waiting message can be delivered now. Earlier deferred messages keep their time."""
            before = self.model.dead
            self.model.expire()
            self.moved += self.model.dead - before
            set_rule(node, self.topic, "c", message_ttl="1ns")
            until_channel(node, self.topic, expired_count=self.model.expired, depth=0, dead_letter_count=self.model.dead,
                          deferred_count=len(self.model.delayed))
            self.set("message_ttl", self.model.rules.get("message_ttl"))

        @rule(count=st.integers(1, 5))
        def publish(self, count: int) -> None:
            bodies = [b"%d" % number for number in range(self.published, self.published + count)]
            most = self.model.rules.get("max_depth", 0)
            if self.model.rules.get("overflow", "refuse") == "refuse" and 0 < most < self.model.depth() + count:
                client = node.connect()
                client.command(f"MPUB {self.topic}", batch(*bodies))
                kind, data = client.frame()
                assert kind == 1 and b"max_depth is %d" % most in data, data
                client.close()
                return
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
            else:
                self.model.finished += 1
            self.barrier(consumer)

        @precondition(lambda self: self.consumers)
        @rule(data=st.data())
        def lose(self, data) -> None:
            consumer = self.consumers.pop(data.draw(st.integers(0, len(self.consumers) - 1)))
            consumer.client.close()
            flying = {body: message.attempts for body, message in consumer.flying.items()}
            if "requeue_on_disconnect" in self.model.rules:
                for body, attempts in flying.items():
                    self.model.fail(body, attempts, delays=False)
            else:
                self.model.lost.update(flying)
            until_channel(node, self.topic, client_count=len(self.consumers), requeue_count=self.model.requeues)

        @rule()
        def empty(self) -> None:
            node.post(f"/channel/empty?topic={self.topic}&channel=c")
            self.emptied += self.model.left() + self.in_flight()
            self.model.waiting, self.model.delayed, self.model.lost, self.model.front = {}, {}, {}, {}
            self.model.dropped = 0
            for consumer in self.consumers:
                consumer.flying = {}

        # ---------------------------------------------------------------- consequences

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
            before = self.model.take(message.body)
            assert message.attempts == before + 1, message
            assert message.body not in consumer.flying
            consumer.flying[message.body] = message

        def in_flight(self) -> int:
            return sum(len(consumer.flying) for consumer in self.consumers) + len(self.model.lost)

        def room(self) -> int:
            """The number of further messages that may be in flight."""
            room = sum(max(consumer.rdy - len(consumer.flying), 0) for consumer in self.consumers)
            limit = 1 if "ordered" in self.model.rules else self.model.rules.get("max_in_flight", 0)
            return room if limit == 0 else min(room, max(limit - self.in_flight(), 0))

        @invariant()
        def agrees(self) -> None:
            wait_until(self.is_as_modelled, f"what the model has, {self.model.__dict__}")
            for consumer in self.consumers:
                self.barrier(consumer)
            assert self.model.goes_out(self.room()) == 0
            if self.model.rules.get("overflow", "refuse") != "refuse" and self.model.rules.get("max_depth"):
                assert self.model.depth() <= self.model.rules["max_depth"] or len(self.model.waiting) == self.model.dropped
            # In one place, never in none.
            assert self.published - self.emptied == (
                self.model.finished + self.model.left() + self.in_flight() + self.model.overflows + self.model.expired
                + self.model.dead - self.moved)

        def is_as_modelled(self) -> bool:
            stats = node.channel(self.topic, "c")
            before = self.model.dead
            self.model.overflowed(stats.get("overflow_count", 0) - self.model.overflows)
            self.moved += self.model.dead - before      # they count as overflows, too
            due = self.model.goes_out(self.room())
            out = 0
            if self.model.front and "ordered" not in self.model.rules:
                out = min(due, sum(delays for _, delays in self.model.front.values()))
            wanted = {"in_flight_count": self.in_flight() + due, "requeue_count": self.model.requeues,
                      "dead_letter_count": self.model.dead, "expired_count": self.model.expired}
            waits = stats["depth"] + stats["deferred_count"] == self.model.left() - due
            return waits and (out or stats["depth"] == self.model.depth() - due) and all(
                stats.get(key, 0) == value for key, value in wanted.items())

        def teardown(self) -> None:
            # Before consumers leave: each passes its messages on to the next, until their attempts are used up.
            dead = node.stats(f"{self.topic}.dead")["depth"] if self.model.dead else 0
            for consumer in self.consumers:
                consumer.client.close()
            node.post(f"/topic/delete?topic={self.topic}")
            assert dead == self.model.dead
            if dead:
                node.post(f"/topic/delete?topic={self.topic}.dead")

    return Machine


@pytest.mark.parametrize("storage", ["memory", "log"])
def test_a_channel_agrees_with_the_model(daemon, storage):
    node = daemon(f"--topic-storage={storage}", "--msg-timeout=10m", "--max-msg-timeout=15m")
    run_state_machine_as_test(machine(node, [0]), settings=settings(
        max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None, database=None,
        suppress_health_check=list(HealthCheck), phases=[Phase.generate, Phase.shrink]))
