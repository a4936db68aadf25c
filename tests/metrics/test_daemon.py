"""/metrics of real daemons: the values match the events."""

import contextlib
import re
import socket
import urllib.error

import pytest

from nsqc.broker.refusals import REASONS
from nsqc.metrics.declared import OF_BUCKET, OF_NSQD, Type
from tests.metrics import pages
from tests.metrics.pages import OPEN_METRICS, TEXT, scrape, value
from tests.peers.authd import AuthServer, reply
from tests.support.daemon import wait_until
from tests.support.patience import WAIT_SECONDS
from tests.support.secure import client_context, identify, upgrade

LATENCIES = ("nsqc_channel_delivery_latency_seconds", "nsqc_channel_processing_latency_seconds")


@pytest.fixture
def busy(daemon):
    """A daemon with everything: logs, ephemeral names, consumers, messages in flight."""
    node = daemon("--topic-storage=memory")
    node.http("PUT", "/topic/rules?topic=logged", b'{"storage": "log", "dedupe": "1m"}')
    producer, consumer = node.connect(), node.connect().sub("plain", "worker", 5)
    for topic in ("plain", "logged", "short#ephemeral"):
        producer.pub(topic, *[b"x" * 100] * 10)
    node.post("/channel/create?topic=logged&channel=reader")
    node.post("/channel/create?topic=plain&channel=tail%23ephemeral")
    consumer.messages(5, finish=True)
    return node


@pytest.mark.parametrize("accept,content_type", [
    (TEXT, "text/plain; version=0.0.4; charset=utf-8"), ("", "text/plain; version=0.0.4; charset=utf-8"),
    (OPEN_METRICS, "application/openmetrics-text; version=1.0.0; charset=utf-8")])
def test_a_page_has_what_is_declared_and_the_official_client_writes_the_same(busy, accept, content_type):
    given, text = pages.fetch(busy.http_port, accept)
    assert given == content_type
    accept = accept or TEXT
    read = pages.families(text, accept)
    assert pages.samples_of(pages.families(pages.encoded_again(read, accept), accept)) == pages.samples_of(read)
    kinds = {metric.name: metric.type for metric in read}
    assert kinds == {metric.sample if accept == TEXT and metric.type is Type.INFO else metric.name:
                     "gauge" if accept == TEXT and metric.type is Type.INFO else metric.type.value
                     for metric in OF_NSQD if metric not in OF_BUCKET}
    declared = {metric.name: metric for metric in OF_NSQD}
    for metric in read:
        known = declared[metric.name.removesuffix("_info")]
        if accept == OPEN_METRICS:
            assert (metric.unit, metric.documentation) == (known.unit, known.help)
        for sample in metric.samples:
            assert set(sample.labels) - {"le"} == set(known.labels)
    # This daemon has no certificate.
    assert [metric.name for metric in read if not metric.samples] == ["nsqc_certificate_expiry_seconds"]


def test_both_formats_have_the_same_samples(busy):
    assert scrape(busy.http_port).keys() == scrape(busy.http_port, OPEN_METRICS).keys()


def test_numbers_are_what_has_happened(daemon):
    node = daemon("--mem-queue-size=3")
    producer, consumer, slow = node.connect(), node.connect().sub("t", "c", 2), node.connect()
    producer.pub("t", *[b"x" * 10] * 8)
    first, second = consumer.messages(2)
    consumer.send(b"RDY 0\nFIN " + first.id + b"\nREQ " + second.id + b" 600000\n")
    identify(slow, msg_timeout=1000)
    slow.sub("t", "c", 1).message()
    slow.send(b"RDY 0\n")
    wait_until(lambda: node.channel("t", "c")["timeout_count"] == 1)
    producer.ok("DPUB t 600000", b"y")
    wait_until(lambda: node.channel("t", "c")["deferred_count"] == 2)
    samples, stats = scrape(node.http_port), node.channel("t", "c")
    for name, key in (("depth", "depth"), ("backend_depth", "backend_depth"), ("in_flight", "in_flight_count"),
                      ("deferred", "deferred_count"), ("messages_total", "message_count"),
                      ("requeues_total", "requeue_count"), ("timeouts_total", "timeout_count"),
                      ("clients", "client_count")):
        assert value(samples, f"nsqc_channel_{name}", topic="t", channel="c") == stats[key], name
    assert [stats[key] for key in ("depth", "deferred_count", "message_count", "timeout_count")] == [6, 2, 9, 1]
    topic = node.stats("t")
    assert value(samples, "nsqc_topic_messages_total", topic="t") == topic["message_count"] == 9
    assert value(samples, "nsqc_topic_message_bytes_total", topic="t") == topic["message_bytes"] == 81
    assert value(samples, "nsqc_topic_channels", topic="t") == 1
    assert value(samples, "nsqc_connections", kind="tcp") == 3
    assert (value(samples, "nsqc_topics"), value(samples, "nsqc_channels")) == (1, 1)
    assert value(samples, "nsqc_healthy") == 1
    assert value(samples, "nsqc_memory_bytes", room="slabs") > 0
    assert value(samples, "nsqc_memory_bytes", room="queues") > 0
    assert value(samples, "nsqc_disk_free_bytes") > 0
    assert value(samples, "nsqc_disk_size_bytes") >= value(samples, "nsqc_disk_free_bytes")
    assert 0 < value(samples, "nsqc_process_open_descriptors") < value(samples, "nsqc_process_max_descriptors")
    assert value(samples, "nsqc_process_resident_memory_bytes") > 10_000_000
    wait_until(lambda: value(scrape(node.http_port), "nsqc_disk_sync_seconds_count") > 0)
    wait_until(lambda: value(scrape(node.http_port), "nsqc_loop_lag_seconds_count") > 0)


def test_latencies_are_those_of_first_deliveries_and_of_fins(daemon):
    node = daemon()
    producer, consumer = node.connect(), node.connect().sub("t", "c")
    producer.ok("DPUB t 300", b"x")
    consumer.send(b"RDY 1\n")
    message = consumer.message()
    consumer.send(b"REQ " + message.id + b" 300\n")
    again = consumer.message()
    assert again.attempts == 2
    consumer.fin(again)
    wait_until(lambda: node.channel("t", "c")["in_flight_count"] == 0)
    samples = scrape(node.http_port)
    delivery, processing = LATENCIES
    counts = [value(samples, f"{name}_count", topic="t", channel="c") for name in LATENCIES]
    assert counts == [1, 1]
    assert value(samples, f"{delivery}_sum", topic="t", channel="c") >= 0.3
    assert value(samples, f"{processing}_sum", topic="t", channel="c") >= 0.6
    for name, least in ((delivery, 0.3), (processing, 0.6)):
        buckets = {float(key[1][1][1]) if key[1][1][0] == "le" else float(dict(key[1])["le"]): count
                   for key, count in samples.items() if key[0] == f"{name}_bucket"}
        assert len(buckets) == 15 and buckets[float("inf")] == 1
        assert all(count == 0 for bound, count in buckets.items() if bound < least)
        assert sorted(buckets.values()) == [buckets[bound] for bound in sorted(buckets)]


def test_every_message_is_counted_once_in_runs_of_any_length(daemon):
    """Equal latencies are counted in runs: pages between and within runs have each message exactly once."""
    node = daemon()
    producer, consumer = node.connect(), node.connect().sub("t", "c", 100)
    done = 0
    for batch in (1, 7, 1, 1, 30, 2):
        producer.pub("t", *[b"x"] * batch)
        messages = consumer.messages(batch)
        for part in (messages[:batch // 2], messages[batch // 2:]):
            consumer.send(b"".join(b"FIN " + message.id + b"\n" for message in part))
            done += len(part)
            wait_until(lambda done=done: consumer_of(node)["finish_count"] == done)
            samples = scrape(node.http_port)
            assert value(samples, f"{LATENCIES[1]}_count", topic="t", channel="c") == done
            assert value(samples, f"{LATENCIES[1]}_bucket", topic="t", channel="c", le="+Inf") == done
        assert value(samples, f"{LATENCIES[0]}_count", topic="t", channel="c") == done
    sums = [value(samples, f"{name}_sum", topic="t", channel="c") for name in LATENCIES]
    again = scrape(node.http_port)
    assert [value(again, f"{name}_sum", topic="t", channel="c") for name in LATENCIES] == sums
    assert 0 <= sums[0] < sums[1] < 60 * done


def test_the_latency_of_all_channels_never_falls(daemon):
    """No counter falls when channels, topics and ephemeral channels with counts are deleted."""
    node = daemon()
    name, seen = "nsqc_processing_latency_seconds", 0
    for number, channel in enumerate(("c", "d", "e#ephemeral", "f")):
        consumer = node.connect().sub("t", channel, 10)
        node.publish("t", *[b"x"] * (number + 1))
        consumer.messages(number + 1, finish=True)
        wait_until(lambda channel=channel, done=number + 1: consumer_of_channel(node, channel)["finish_count"] == done)
        samples = scrape(node.http_port)
        seen += number + 1
        assert value(samples, f"{name}_count") == value(samples, f"{name}_bucket", le="+Inf") == seen
        assert value(samples, f"{name}_sum") > 0
        consumer.close()
        if number % 2 == 0:
            node.http("POST", f"/channel/delete?topic=t&channel={channel.replace('#', '%23')}")
        else:
            node.post("/topic/delete?topic=t")
        samples = scrape(node.http_port)
        assert value(samples, f"{name}_count") == seen


def consumer_of_channel(node, channel) -> dict:
    """The statistics of the only client of a channel of t."""
    (client,) = node.channel("t", channel)["clients"]
    return client


def consumer_of(node) -> dict:
    """The statistics of the only client of the only channel."""
    (client,) = node.channel("t", "c")["clients"]
    return client


def test_a_channel_without_traffic_has_no_histograms(daemon):
    node = daemon()
    node.connect().sub("t", "c", 1)
    assert not [key for key in scrape(node.http_port) if key[0].startswith(LATENCIES)]


def test_a_log_says_what_it_holds_and_how_far_channels_are_behind(daemon):
    node = daemon("--topic-storage=log", "--log-retain-time=1h")
    node.connect().sub("t", "idle")
    consumer = node.connect().sub("t", "c", 4)
    node.connect().pub("t", *[b"x" * 100] * 10)
    consumer.messages(4)
    samples = scrape(node.http_port)
    numbers = {name: value(samples, f"nsqc_topic_log_{name}", topic="t")
               for name in ("first_offset", "next_offset", "segments")}
    assert numbers == {"first_offset": 0, "next_offset": 10, "segments": 1}
    assert value(samples, "nsqc_topic_log_size_bytes", topic="t") >= 1000
    assert value(samples, "nsqc_channel_log_lag", topic="t", channel="c") == 6
    assert value(samples, "nsqc_channel_log_lag", topic="t", channel="idle") == 10


# ---------------------------------------------------------------------- names that share a series


def test_ephemeral_names_share_a_series_whose_counters_never_fall(daemon):
    node = daemon()
    producer = node.connect()
    for number in range(3):
        consumer = node.connect().sub("t", f"tail{number}#ephemeral", 1)
        producer.pub("t", b"x")
        consumer.fin(consumer.message())
        name = f"short{number}#ephemeral"
        other = node.connect().sub(name, "c", 1)
        producer.pub(name, b"xy")
        other.fin(other.message())
        wait_until(lambda name=name: node.channel(name, "c")["in_flight_count"] == 0)
        for client in (consumer, other):
            client.send(b"CLS\n")
            client.close()
        if number:
            node.post(f"/topic/delete?topic=short{number}%23ephemeral")
        wait_until(lambda: not node.stats("t")["channels"])
        samples = scrape(node.http_port)
        done = number + 1
        assert value(samples, "nsqc_channel_messages_total", topic="t", channel="#ephemeral") == done
        assert value(samples, f"{LATENCIES[1]}_count", topic="t", channel="#ephemeral") == done
        assert value(samples, "nsqc_topic_messages_total", topic="#ephemeral") == done
        assert value(samples, "nsqc_topic_message_bytes_total", topic="#ephemeral") == 2 * done
        assert value(samples, "nsqc_channel_messages_total", topic="#ephemeral", channel="#ephemeral") == done
        assert value(samples, f"{LATENCIES[0]}_count", topic="#ephemeral", channel="#ephemeral") == done
    assert {dict(key[1]).get("topic") for key in samples} == {None, "t", "#ephemeral"}


def test_channels_can_share_the_series_of_their_topic(daemon):
    node = daemon("--metrics-per-channel=false")
    producer = node.connect()
    consumers = [node.connect().sub("t", name, 2) for name in ("a", "b", "c#ephemeral")]
    ephemeral = node.connect().sub("e#ephemeral", "x", 1)
    producer.pub("t", b"1", b"2", b"3")
    producer.pub("e#ephemeral", b"1")
    for consumer in consumers:
        consumer.messages(2)
    ephemeral.fin(ephemeral.message())
    samples = scrape(node.http_port)
    assert {tuple(sorted(dict(key[1]))) for key in samples if key[0].startswith("nsqc_channel_")} == {
        ("topic",), ("le", "topic")}
    assert value(samples, "nsqc_channel_depth", topic="t") == 3
    assert value(samples, "nsqc_channel_in_flight", topic="t") == 6
    assert value(samples, "nsqc_channel_clients", topic="t") == 3
    assert value(samples, "nsqc_channel_messages_total", topic="t") == 9
    assert value(samples, f"{LATENCIES[0]}_count", topic="t") == 6
    assert value(samples, "nsqc_channel_messages_total", topic="#ephemeral") == 1
    node.post("/channel/delete?topic=t&channel=a")
    samples = scrape(node.http_port)
    assert value(samples, "nsqc_channel_messages_total", topic="t") == 9
    assert value(samples, "nsqc_channel_depth", topic="t") == 2
    assert value(samples, f"{LATENCIES[0]}_count", topic="t") == 6


# ---------------------------------------------------------------------- refusals


def refused(node) -> dict[str, float]:
    """Counts by reason, those that are not 0."""
    samples = scrape(node.http_port)
    numbers = {reason: value(samples, "nsqc_publishes_refused_total", reason=reason) for reason in REASONS}
    return {reason: number for reason, number in numbers.items() if number}


def test_invalid_publishes_are_counted(daemon):
    node = daemon("--max-msg-size=100")
    for command in (b"PUB b@d\n\0\0\0\1x", b"PUB t\n\0\0\1\0", b"MPUB t\n\0\0\0\4\0\0\0\0", b"DPUB t x\n\0\0\0\1x",
                    b"DPUB t 99999999999\n\0\0\0\1x", b"PUB\n"):
        client = node.connect()
        client.send(command)
        assert client.frame()[0] == 1, command
    assert refused(node) == {"invalid": 6}
    for path, body in (("/pub?topic=b@d", b"x"), ("/pub?topic=t", b"x" * 101), ("/pub?topic=t", b""), ("/pub", b"x"),
                       ("/mpub?topic=t&binary=true", b"x"), ("/pub?topic=t&defer=x", b"x")):
        assert node.http("POST", path, body)[0] in (400, 413)
    assert refused(node) == {"invalid": 12}
    client = node.connect()
    client.send(b"SUB b@d c\n")
    client.frame()
    assert node.http("POST", "/topic/create?topic=b@d")[0] == 400
    assert refused(node) == {"invalid": 12}


def test_publishes_that_the_disk_has_no_room_for_are_counted(daemon):
    node = daemon("--mem-queue-size=0", f"--min-free-disk={1 << 60}")
    wait_until(lambda: node.http("POST", "/pub?topic=t", b"x")[0] == 503)
    before = refused(node)["no_space"]
    node.http("POST", "/pub?topic=t", b"x")
    node.http("POST", "/mpub?topic=t", b"x\ny\nz")
    for command in (b"PUB t\n\0\0\0\1x", b"MPUB t\n\0\0\0\x0d\0\0\0\1\0\0\0\5hello"):
        client = node.connect()
        client.send(command)
        assert b"no space" in client.frame()[1]
    assert refused(node) == {"no_space": before + 4}
    assert value(scrape(node.http_port), "nsqc_disk_free_limit_bytes") == 1 << 60


def test_publishes_to_a_full_log_are_counted(daemon):
    node = daemon("--topic-storage=log", "--log-retain-bytes=2000", "--max-bytes-per-file=500")
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    wait_until(lambda: node.http("POST", "/pub?topic=t", b"x" * 400)[0] == 503)
    assert set(refused(node)) == {"log_full"}


def test_publishes_that_are_not_permitted_are_counted(daemon):
    with contextlib.closing(AuthServer(reply(authorizations=[{"topic": "open", "channels": [".*"], "permissions": [
            "publish"]}]))) as server:
        node = daemon(f"--auth-http-address=127.0.0.1:{server.port}")
        for hello in (b"", b"AUTH\n\0\0\0\1s"):
            client = node.connect()
            client.send(hello)
            assert not hello or client.frame()[0] == 0
            client.send(b"PUB closed\n\0\0\0\1x")
            assert client.frame()[0] == 1
        assert refused(node) == {"unauthorized": 2}


# ---------------------------------------------------------------------- clients


def test_handshakes_and_refused_connections_are_counted(daemon, certs):
    node = daemon(f"--tls-cert={certs}/server.pem", f"--tls-key={certs}/server.key", "--max-connections-per-address=3")
    first, second = node.connect(), node.connect()
    identify(first, tls_v1=True)
    upgrade(first, client_context())
    identify(second, tls_v1=True)
    second.send(b"this is not a handshake")
    with contextlib.suppress(OSError):
        while second.sock.recv(1000):
            pass
    samples = wait_until(lambda: (read := scrape(node.http_port)) and value(
        read, "nsqc_tls_handshakes_total", result="failed") and read)
    assert value(samples, "nsqc_tls_handshakes_total", result="ok") == 1
    kept = [node.connect() for _ in range(2)]
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", node.tcp_port)) as sock:
        sock.settimeout(WAIT_SECONDS)
        assert sock.recv(10) == b""
    for client in kept:
        client.close()
    samples = wait_until(lambda: scraped_or_none(node))
    assert value(samples, "nsqc_connections_refused_total", limit="--max-connections-per-address") >= 1


@pytest.mark.parametrize("accept", [TEXT, OPEN_METRICS])
def test_a_page_of_many_pieces_comes_over_tls(daemon, certs, accept):
    """Prometheus scrapes nodes that require TLS by their HTTPS port."""
    node = daemon(f"--tls-cert={certs}/server.pem", f"--tls-key={certs}/server.key", "--tls-required=true")
    port = int(re.findall(r"HTTPS: listening on \S+:(\d+)", node.log)[-1])
    producer = node.connect()
    identify(producer, tls_v1=True)
    upgrade(producer, client_context())
    for number in range(300):
        producer.pub(f"t{number}", b"x")
    content_type, text = pages.fetch(port, accept, client_context())
    assert content_type.startswith(accept.partition(";")[0])
    samples = pages.samples_of(pages.families(text, accept))
    assert [value(samples, "nsqc_topic_messages_total", topic=f"t{number}") for number in range(300)] == [1] * 300
    assert value(samples, "nsqc_connections", kind="https") == 1
    with pytest.raises(urllib.error.HTTPError, match="403"):
        pages.fetch(node.http_port, accept)


def test_a_drain_shows(daemon):
    node = daemon()
    shown = [value(scrape(node.http_port), "nsqc_draining")]
    consumer = node.connect().sub("t", "c", 1)
    node.connect().pub("t", b"x")
    message = consumer.message()
    node.post("/drain?timeout=10m&keep=true")
    shown.append(value(scrape(node.http_port), "nsqc_draining"))
    consumer.fin(message)
    wait_until(lambda: b'"drained"' in node.http("GET", "/drain")[1])
    shown.append(value(scrape(node.http_port), "nsqc_draining"))
    assert node.http("DELETE", "/drain")[0] == 200
    shown.append(value(scrape(node.http_port), "nsqc_draining"))
    assert shown == [0, 1, 1, 0]


def scraped_or_none(node):
    """None while the client's own address has too many connections."""
    with contextlib.suppress(OSError):
        return scrape(node.http_port)
