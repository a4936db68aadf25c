"""All rules together, over memory, files and logs, with restarts and kills: a channel without consumers comes to rest
within its limits, no message is delivered against a rule, and each is finished, a dead letter, dropped by a rule, or
still there.
"""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.publishing.support import publisher
from tests.rules.support import make, set_rule
from tests.support.daemon import Client, Daemon, Message, batch, wait_until

EXAMPLES, STEPS = 3, 25
SHORT_MS, QUIET_S = 200, 0.1
TTL_NS = 10**9
VALUES: dict[str, list[object]] = {
    "message_ttl": [None, "1s", "20m"], "expired": ["drop", "dead-letter"], "max_attempts": [None, 1, 2],
    "max_depth": [None, 2, 6], "max_bytes": [None, 400], "overflow": ["refuse", "drop-oldest", "dead-letter"],
    "ordered": [None, True], "max_in_flight": [None, 3]}
FLAGS = {"memory": ("--topic-storage=memory",), "files": ("--topic-storage=memory", "--mem-queue-size=2"),
         "log": ("--topic-storage=log", "--max-bytes-per-file=2000")}


def machine(node: Daemon, storage: str, numbers: list[int]) -> type[RuleBasedStateMachine]:
    """The state machine over one daemon; each example has its own topic."""

    class Machine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            numbers[0] += 1
            self.topic = f"t{numbers[0]}"
            self.rules: dict[str, Any] = {}
            self.sent: set[bytes] = set()
            self.finished: set[bytes] = set()
            self.may_drop = False
            self.killed = False

        @initialize()
        def create(self) -> None:
            make(node, self.topic)
            set_rule(node, self.topic, "c", requeue_on_disconnect=True)

        # ---------------------------------------------------------------- steps

        @rule(data=st.data(), key=st.sampled_from(sorted(VALUES)))
        def change_rule(self, data: st.DataObject, key: str) -> None:
            self.rules[key] = data.draw(st.sampled_from(VALUES[key]))
            drops = (self.rules.get("message_ttl") and self.rules.get("expired", "drop") == "drop") or (
                (self.rules.get("max_depth") or self.rules.get("max_bytes")) and self.rules.get("overflow") == "drop-oldest")
            self.may_drop |= bool(drops)
            set_rule(node, self.topic, "c", **{key: self.rules[key]})

        @rule(count=st.integers(1, 8), defer=st.sampled_from([0, 0, SHORT_MS]))
        def publish(self, count: int, defer: int) -> None:
            bodies = {b"%s-%d" % (self.topic.encode(), len(self.sent) + number) for number in range(count)}
            client = publisher(node)
            client.command(f"DMPUB {self.topic} {defer}" if defer else f"MPUB {self.topic}", batch(*bodies))
            kind, data = client.frame()
            client.close()
            if kind == 1:
                assert b"its max_" in data and self.rules.get("overflow", "refuse") == "refuse", data
            else:
                self.sent |= bodies

        @rule(rdy=st.integers(1, 5), verb=st.sampled_from(["FIN", "REQ", "DELAY", "LOSE"]))
        def consume(self, rdy: int, verb: str) -> None:
            began_ns = time.time_ns()
            client = node.connect().sub(self.topic, "c", rdy)
            for message in self.received(client, rdy):
                self.check(message, began_ns)
                if verb == "FIN":
                    client.fin(message)
                    self.finished.add(message.body)
                elif verb != "LOSE":
                    client.command(f"REQ {message.id.decode()} {SHORT_MS if verb == 'DELAY' else 0}")
            self.leave(client)

        @rule()
        def restart(self) -> None:
            node.restart()

        if storage == "log":
            @rule()
            def kill(self) -> None:
                self.killed = True
                node.kill()
                node.start()

        # ---------------------------------------------------------------- consequences

        def received(self, client: Client, most: int) -> list[Message]:
            messages: list[Message] = []
            while len(messages) < most:
                try:
                    messages.append(client.message(QUIET_S))
                except TimeoutError:
                    break
            return messages

        def check(self, message: Message, began_ns: int) -> None:
            assert message.body in self.sent
            assert self.killed or message.body not in self.finished
            assert message.attempts <= (self.rules.get("max_attempts") or 65535)
            if self.rules.get("message_ttl") == "1s":
                assert message.timestamp + TTL_NS >= began_ns

        def leave(self, client: Client) -> None:
            """Ends a consumer whose commands have been carried out."""
            client.command("CLS")
            while True:
                kind, data = client.frame()
                assert kind != 1, data
                if kind == 0 and data == b"CLOSE_WAIT":
                    break
            client.close()
            wait_until(lambda: node.channel(self.topic, "c")["client_count"] == 0)

        @invariant()
        def comes_to_rest(self) -> None:
            wait_until(self.rests, f"{self.topic} comes to rest by {self.rules}: {node.channel(self.topic, 'c')}")

        def rests(self) -> bool:
            stats = node.channel(self.topic, "c")
            most = self.rules.get("max_depth") if self.rules.get("overflow", "refuse") != "refuse" else None
            if self.rules.get("message_ttl") == "1s":
                most = 0
            return (stats["in_flight_count"] == stats["deferred_count"] == 0
                    and (most is None or stats["depth"] <= most))

        def teardown(self) -> None:
            set_rule(node, self.topic, "c", **dict.fromkeys(VALUES))
            left = self.drained(self.topic, "c")
            dead_topic = f"{self.topic}.dead"
            dead = self.drained(dead_topic, "reader") if any(
                found["topic_name"] == dead_topic for found in node.stats()["topics"]) else []
            for topic in (self.topic, dead_topic):
                node.http("POST", f"/topic/delete?topic={topic}")
            missing = self.sent - self.finished - {*left} - {*dead}
            assert self.may_drop or not missing, missing
            if not self.killed:
                assert len(left) + len(dead) + len(self.finished) == len({*left, *dead} | self.finished)

        def drained(self, topic: str, channel: str) -> list[bytes]:
            bodies: list[bytes] = []
            client = node.connect().sub(topic, channel, 100)
            while True:
                for message in self.received(client, 100):
                    client.fin(message)
                    bodies.append(message.body)
                stats = node.channel(topic, channel)
                if not any(stats[key] for key in ("depth", "deferred_count", "in_flight_count")):
                    client.close()
                    return bodies

    return Machine


@pytest.mark.parametrize("storage", FLAGS)
def test_rules_in_any_combination(daemon, storage):
    node = daemon(*FLAGS[storage], "--msg-timeout=10m", "--max-msg-timeout=15m")
    run_state_machine_as_test(machine(node, storage, [0]), settings=settings(
        max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None, database=None, print_blob=False,
        suppress_health_check=list(HealthCheck), phases=[Phase.generate, Phase.shrink]))
