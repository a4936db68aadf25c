"""Statistics pushed by UDP, as statsd receives them, and their lines and datagrams."""

import re
import socket

import pytest

from nsqc.broker.stats import MemoryStats
from nsqc.options.declared import SERVE, OptionError, Options
from nsqc.peers.statsd import Datagrams, Report, preferred, prefix_of
from nsqc.wire.stats import ChannelStats, Latency, TopicStats
from tests.support.daemon import wait_until

OFTEN = "--statsd-interval=200ms"


def settled(server, key: str, value: int) -> None:
    """Waits until a key's last value is this."""
    wait_until(lambda: server.values(key)[-1:] == [value], f"{key} {value}")


def test_counters_are_differences_and_gauges_what_is(daemon, statsd):
    server = statsd()
    node = daemon(f"--statsd-address={server.address}", OFTEN)
    producer = node.connect()
    producer.pub("t", b"one", b"two", b"three")
    consumer = node.connect().sub("t", "c", 2)
    first, second = consumer.messages(2)
    node.post("/pub?topic=t&defer=60000", b"later")
    settled(server, ".topic.t.channel.c.in_flight_count", 2)
    settled(server, ".topic.t.channel.c.deferred_count", 1)
    settled(server, ".topic.t.channel.c.depth", 1)
    settled(server, ".topic.t.channel.c.clients", 1)
    consumer.send(b"REQ " + first.id + b" 0\n")
    consumer.message()
    consumer.fin(second)
    wait_until(lambda: sum(server.values(".topic.t.channel.c.requeue_count")) == 1)
    # A few more intervals without messages.
    seen = len(server.values(".topic.t.depth"))
    wait_until(lambda: len(server.values(".topic.t.depth")) > seen + 3)
    assert sum(server.values(".topic.t.message_count")) == 4
    assert sum(server.values(".topic.t.message_bytes")) == len("onetwothreelater")
    assert sum(server.values(".topic.t.channel.c.message_count")) == 4
    assert sum(server.values(".topic.t.channel.c.requeue_count")) == 1
    assert server.values(".topic.t.message_count")[-1] == 0
    assert server.values(".mem.heap_objects")[-1] > 1000
    host = f"{socket.gethostname().replace('.', '_')}_{node.http_port}"
    assert all(line.startswith(f"nsq.{host}.") for line in server.lines())


def test_timeouts_are_counted(daemon, statsd):
    server = statsd()
    node = daemon(f"--statsd-address={server.address}", OFTEN, "--msg-timeout=100ms")
    node.connect().pub("t", b"x")
    node.connect().sub("t", "c", 1).messages(2)
    wait_until(lambda: sum(server.values(".topic.t.channel.c.timeout_count")) >= 1)


def test_a_topic_made_again_counts_from_zero(daemon, statsd):
    server = statsd()
    node = daemon(f"--statsd-address={server.address}", OFTEN)
    producer = node.connect()
    producer.pub("t", b"1", b"2", b"3", b"4", b"5")
    wait_until(lambda: sum(server.values(".topic.t.message_count")) == 5)
    node.post("/topic/delete?topic=t")
    producer.pub("t", b"1", b"2")
    wait_until(lambda: sum(server.values(".topic.t.message_count")) == 7)
    assert min(server.values(".topic.t.message_count")) >= 0


def test_datagrams_keep_to_their_size_and_nothing_is_lost(daemon, statsd):
    server = statsd()
    node = daemon(f"--statsd-address={server.address}", OFTEN, "--statsd-udp-packet-size=150",
                  "--statsd-mem-stats=false", "--statsd-prefix=p")
    names = [f"t{number:02}" for number in range(70)]
    for name in names:
        node.post(f"/topic/create?topic={name}")
    wait_until(lambda: all(server.values(f"p.topic.{name}.depth") for name in names))
    assert max(len(packet) for packet in server.packets) <= 150
    assert sorted(len(packet) for packet in server.packets)[-20] > 100
    assert all(packet.endswith(b"\n") for packet in server.packets)
    assert {line.split(".")[3].split(":")[0] for line in server.lines()} == {
        "message_count", "message_bytes", "depth", "backend_depth"}


def test_ephemeral_names_can_be_left_out(daemon, statsd):
    server = statsd()
    node = daemon(f"--statsd-address={server.address}", OFTEN, "--statsd-exclude-ephemeral")
    for topic in ("t", "e%23ephemeral"):
        node.post(f"/topic/create?topic={topic}")
        node.post(f"/channel/create?topic={topic}&channel=c")
        node.post(f"/channel/create?topic={topic}&channel=d%23ephemeral")
    wait_until(lambda: server.values(".topic.t.channel.c.depth"))
    seen = len(server.lines())
    wait_until(lambda: len(server.lines()) > seen + 30)
    assert not [line for line in server.lines() if "ephemeral" in line]


def test_latencies(daemon, statsd):
    server = statsd()
    node = daemon(f"--statsd-address={server.address}", OFTEN, "--e2e-processing-latency-percentile=1.0,0.95")
    node.connect().pub("t", b"x")
    node.connect().sub("t", "c", 1).messages(1, finish=True)
    for key in (".topic.t.channel.c.e2e_processing_latency_100", ".topic.t.e2e_processing_latency_95"):
        wait_until(lambda key=key: server.values(key)[-1:] > [1000], key)


def test_names_are_resolved(daemon, statsd):
    server = statsd()
    daemon(f"--statsd-address=localhost:{server.port}", OFTEN)
    wait_until(lambda: server.values(".mem.next_gc_bytes"))


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:70000"])
def test_an_address_that_is_none_is_refused_by_name(daemon, address):
    with pytest.raises(AssertionError, match=f"the daemon left with 1: .*--statsd-address: address {address}: "):
        daemon(f"--statsd-address={address}", OFTEN)


def test_a_host_that_is_not_found_does_no_harm(daemon):
    address = "no-such-host.invalid:8125"
    node = daemon(f"--statsd-address={address}", OFTEN)
    failed = f"ERROR: failed to create UDP socket to statsd({address})"
    wait_until(lambda: failed in node.log)
    node.connect().pub("t", b"x")
    assert node.stop() == 0
    assert node.log.count(failed) == 1


def test_nobody_there_does_no_harm(daemon):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    node = daemon(f"--statsd-address={address}", OFTEN)
    wait_until(lambda: node.log.count(f"STATSD: pushing stats to {address}") > 3)
    assert "ERROR" not in node.log
    assert node.stop() == 0


def test_a_stop_sends_the_rest_at_once(daemon, statsd):
    server = statsd()
    node = daemon(f"--statsd-address={server.address}", "--statsd-interval=3s", "--statsd-udp-packet-size=1")
    for number in range(25):
        node.post(f"/topic/create?topic=t{number}")
    wait_until(lambda: server.packets)
    assert len(server.packets) < 100
    assert node.stop() == 0
    wait_until(lambda: len(server.packets) == 4 * 25 + 9)


# ---------------------------------------------------------------------- lines and datagrams


def test_datagrams_hold_whole_lines_within_the_size():
    lines = ["a" * 9 + "\n", "b" * 9 + "\n", "c\n", "d" * 30 + "\n", "e\n"]
    expected = [(lines[0] + lines[1]).encode(), b"c\n", lines[3].encode(), b"e\n"]
    for cut in range(6):
        datagrams = Datagrams(20)
        datagrams.add(lines[:cut])
        datagrams.add(lines[cut:])
        assert list(datagrams.finish()) == expected
    assert list(Datagrams(20).finish()) == []


def test_ipv4_is_preferred():
    six, four = (socket.AF_INET6, ("::1", 1, 0, 0)), (socket.AF_INET, ("127.0.0.1", 1))
    assert preferred([six, four]) == preferred([four, six]) == four
    assert preferred([six]) == six


@pytest.mark.parametrize("prefix, host, expected", [
    ("nsq.%s", "n.example.org", "nsq.n_example_org_4151."), ("%s.%s", "::1", "[__1]_4151.[__1]_4151."), ("x.", "h", "x."),
    ("", "h", ""), ("50%", "h", "50%."),
])
def test_prefix(prefix, host, expected):
    options = Options(statsd_prefix=prefix, broadcast_address=host)
    assert prefix_of(options, {"http_port": 4151}) == expected


def test_prefix_has_the_port_that_others_are_told():
    assert prefix_of(Options(broadcast_address="h", broadcast_http_port=80), {"http_port": 4151}) == "nsq.h_80."
    assert prefix_of(Options(broadcast_address="h"), {"http_port": -1}) == "nsq.h_0."


def report(count: int, runs: int, before: Report | None = None) -> Report:
    made = Report("p.", before)
    latency = Latency(2, [{"quantile": 0.999, "value": 7.9}, {"quantile": 0.5, "value": 3}])
    channel = ChannelStats("c", 1, 2, 3, 4, count, 0, 0, 0, 6, 7, 8, None, False, latency)
    topic = TopicStats("t", [channel], 10, 11, count, 13 * count, False, Latency())
    made.topic(topic)
    made.channel(topic, channel)
    made.memory(MemoryStats(1, 2, 3, 4, 5, 6, 7, 8, runs))
    return made


def test_report():
    first = report(100, 5)
    assert "".join(first.lines) == (
        "p.topic.t.message_count:100|c\np.topic.t.message_bytes:1300|c\np.topic.t.depth:10|g\np.topic.t.backend_depth:11|g\n"
        "p.topic.t.channel.c.message_count:100|c\np.topic.t.channel.c.depth:1|g\np.topic.t.channel.c.backend_depth:2|g\n"
        "p.topic.t.channel.c.in_flight_count:3|g\np.topic.t.channel.c.deferred_count:4|g\n"
        "p.topic.t.channel.c.requeue_count:6|c\np.topic.t.channel.c.timeout_count:7|c\np.topic.t.channel.c.clients:8|g\n"
        "p.topic.t.channel.c.e2e_processing_latency_100:7|g\np.topic.t.channel.c.e2e_processing_latency_50:3|g\n"
        "p.mem.heap_objects:1|g\np.mem.heap_idle_bytes:2|g\np.mem.heap_in_use_bytes:3|g\np.mem.heap_released_bytes:4|g\n"
        "p.mem.gc_pause_usec_100:5|g\np.mem.gc_pause_usec_99:6|g\np.mem.gc_pause_usec_95:7|g\np.mem.next_gc_bytes:8|g\n"
        "p.mem.gc_runs:5|c\n")

    def counters(one: Report) -> list[str]:
        return re.findall(r"(-?\d+)\|c", "".join(one.lines))

    second = report(105, 7, first)
    assert counters(second) == ["5", "65", "5", "0", "0", "2"]
    # A lower total belongs to a new topic of the same name, and counts in full.
    assert counters(report(3, 7, second)) == ["3", "39", "3", "0", "0", "0"]


def test_an_interval_too_short_to_keep_is_refused():
    with pytest.raises(OptionError, match="--statsd-interval must be at least 10ms"):
        SERVE.check(Options(statsd_interval=1))
