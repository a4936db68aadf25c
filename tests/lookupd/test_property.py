"""After any sequence of joins, leaves and restarts, /lookup names exactly the live producers, and /nodes their
topics."""

import json

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from tests.support.daemon import wait_until
from tests.support.lookupd import LookupServer, Node

TOPICS = ("t", "u", "v#ephemeral")
CHANNELS = ("", "c", "d#ephemeral")
NODES = ("a", "b", "c", "d")

topics, channels, names = st.sampled_from(TOPICS), st.sampled_from(CHANNELS), st.sampled_from(NODES)


class Fleet(RuleBasedStateMachine):
    """Nodes and their registrations, and a server that receives all of them."""

    server: LookupServer

    def __init__(self):
        super().__init__()
        self.nodes: dict[str, Node] = {}
        self.registered: dict[str, set[str]] = {}           # topics of each live node
        self.channels: set[tuple[str, str, str]] = set()    # topic, channel, node
        self.known: dict[str, set[str]] = {}                # topics, and their channels
        self.hidden: set[tuple[str, str]] = set()           # topic and node: tombstoned
        self.other: dict[str, set[str]] = {}                # channels whose topic is unknown

    @initialize()
    def empty(self):
        self.server.stop()
        self.server.start()

    # ------------------------------------------------------------------ nodes

    @rule(name=names)
    def join(self, name):
        if name not in self.nodes:
            self.nodes[name] = Node(self.server, name)
            self.registered[name] = set()

    def forget(self, name, reset=False):
        self.nodes.pop(name).close(reset)
        del self.registered[name]
        self.channels = {one for one in self.channels if one[2] != name}
        self.hidden = {one for one in self.hidden if one[1] != name}

    @precondition(lambda self: self.nodes)
    @rule(data=st.data(), reset=st.booleans())
    def leave(self, data, reset):
        self.forget(data.draw(st.sampled_from(sorted(self.nodes))), reset)

    @precondition(lambda self: self.nodes)
    @rule(data=st.data(), junk=st.sampled_from([b"OOPS\n", b"REGISTER b@d\n", b"IDENTIFY\n", b"REGISTER\n"]))
    def is_refused(self, data, junk):
        name = data.draw(st.sampled_from(sorted(self.nodes)))
        node = self.nodes[name]
        node.send(junk + b"REGISTER never\n")
        assert node.reply().startswith(b"E_")
        self.forget(name)

    @precondition(lambda self: self.nodes)
    @rule(data=st.data(), topic=topics, channel=channels)
    def register(self, data, topic, channel):
        name = data.draw(st.sampled_from(sorted(self.nodes)))
        self.nodes[name].ok(f"REGISTER {topic} {channel}")
        self.registered[name].add(topic)
        self.known.setdefault(topic, self.other.pop(topic, set()))
        if channel:
            self.known[topic].add(channel)
            self.channels.add((topic, channel, name))

    @precondition(lambda self: self.nodes)
    @rule(data=st.data(), topic=topics)
    def unregister(self, data, topic):
        name = data.draw(st.sampled_from(sorted(self.nodes)))
        self.nodes[name].ok(f"UNREGISTER {topic}")
        self.registered[name].discard(topic)
        self.hidden.discard((topic, name))
        self.channels = {one for one in self.channels if (one[0], one[2]) != (topic, name)}
        if topic.endswith("#ephemeral") and topic in self.known and not self.having(topic):
            self.other[topic] = self.known.pop(topic)

    @precondition(lambda self: self.nodes)
    @rule(data=st.data(), topic=topics, channel=st.sampled_from(CHANNELS[1:]))
    def unregister_channel(self, data, topic, channel):
        name = data.draw(st.sampled_from(sorted(self.nodes)))
        self.nodes[name].ok(f"UNREGISTER {topic} {channel}")
        self.channels.discard((topic, channel, name))
        if channel.endswith("#ephemeral") and not any(one[:2] == (topic, channel) for one in self.channels):
            for known in (self.known, self.other):
                known.get(topic, set()).discard(channel)

    # ------------------------------------------------------------------ operators

    @rule(topic=topics)
    def delete_topic(self, topic):
        assert self.server.call("POST", f"/topic/delete?topic={quoted(topic)}")[0] == 200
        self.known.pop(topic, None)
        self.other.pop(topic, None)
        for had in self.registered.values():
            had.discard(topic)
        self.channels = {one for one in self.channels if one[0] != topic}
        self.hidden = {one for one in self.hidden if one[0] != topic}

    @rule(topic=topics, name=names)
    def tombstone(self, topic, name):
        assert self.server.call("POST", f"/topic/tombstone?topic={quoted(topic)}&node={name}:4151")[0] == 200
        if name in self.nodes and topic in self.registered[name]:
            self.hidden.add((topic, name))

    @rule()
    def restart(self):
        assert self.server.stop() == 0
        for node in self.nodes.values():
            assert node.reply() == b""
            node.close()
        self.server.start()
        self.__init__()

    # ------------------------------------------------------------------ invariants

    def having(self, topic):
        return sorted(name for name, had in self.registered.items() if topic in had)

    def is_true(self):
        """Compares all answers with the model."""
        if sorted(self.server.get("/topics")["topics"]) != sorted(self.known):
            return False
        for topic in TOPICS:
            status, body = self.server.call("GET", f"/lookup?topic={quoted(topic)}")
            if topic not in self.known:
                if status != 404:
                    return False
                continue
            found = json.loads(body)
            if sorted(one["hostname"] for one in found["producers"]) != [
                    name for name in self.having(topic) if (topic, name) not in self.hidden]:
                return False
            if sorted(found["channels"]) != sorted(self.known[topic]):
                return False
        nodes = {one["hostname"]: one for one in self.server.get("/nodes")["producers"]}
        return nodes.keys() == self.nodes.keys() and all(
            set(nodes[name]["topics"]) == had and set(zip(nodes[name]["topics"], nodes[name]["tombstones"], strict=True))
            == {(topic, (topic, name) in self.hidden) for topic in had} for name, had in self.registered.items())

    @rule()
    def compare(self):
        # The end of a connection may still be in transit; all else has been answered.
        wait_until(self.is_true, "what is looked up is what is there")

    def teardown(self):
        try:
            self.compare()
        finally:
            for node in self.nodes.values():
                node.close()


def quoted(topic: str) -> str:
    return topic.replace("#", "%23")


@pytest.fixture
def server(lookupd):
    return lookupd("--tombstone-lifetime=1h")


def test_lookup_names_exactly_the_live_producers(server):
    class Machine(Fleet):
        pass

    Machine.server = server
    run_state_machine_as_test(Machine, settings=settings(
        max_examples=8, stateful_step_count=25, deadline=None, database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]))
