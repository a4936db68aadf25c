"""One connection to a real daemon: publishing, consuming, upgrades, and every error."""

import struct
import time

import pytest

from nsqc.client import AuthError, BadMessage, BadName, Closed, ConnectError, Connection, NoAnswer, Refused, tls
from tests.client.conftest import address
from tests.client.faults import IDENTIFIED, frame, serve
from tests.peers.authd import reply
from tests.support import nested
from tests.support.daemon import wait_until
from tests.support.patience import WAIT_SECONDS
from tests.support.sizes import SIZES

WAYS = {"plain": {}, "tls": {"tls": True}, "deflate": {"deflate": 3}, "snappy": {"snappy": True},
        "tls+deflate": {"tls": True, "deflate": 6}, "tls+snappy": {"tls": True, "snappy": True}}


def take(connection, count: int) -> list:
    found = []
    while len(found) < count:
        more = connection.receive(WAIT_SECONDS)
        assert more, f"{len(found)} of {count} came"
        found += more
    return found


@pytest.fixture
def secured(daemon, certs, authd):
    server = authd()
    node = daemon(f"--tls-cert={certs}/server.pem", f"--tls-key={certs}/server.key", f"--auth-http-address={server.address}")
    node.auth = server
    return node


@pytest.mark.parametrize("way", WAYS)
def test_messages_of_all_sizes_both_ways(secured, certs, way):
    options = {"auth_secret": "open sesame", "timeout": 20, **WAYS[way]}
    if "tls" in options:
        options["tls"] = tls(ca_file=f"{certs}/server.pem")
    bodies = [b"x", bytes(70_000), b"hello " * 100_000, *(b"m%d" % n for n in range(3000))]
    with Connection(address(secured), **options) as producer, Connection(address(secured), **options) as consumer:
        consumer.subscribe("t", "c")
        consumer.ready(200)
        producer.publish("t", bodies[0])
        producer.publish_many("t", bodies[1:], batch_bytes=100_000, batch_rows=500)
        producer.publish_deferred("t", b"late", 200)
        messages = []
        while len(messages) < len(bodies) + 1:
            found = consumer.receive(WAIT_SECONDS)
            assert found
            for message in found:
                message.finish()
            messages += found
        assert sorted(message.body for message in messages) == sorted([*bodies, b"late"])
        assert messages[-1].body == b"late" and messages[-1].attempts == 1
        assert abs(messages[0].timestamp_ns / 1e9 - time.time()) < 60
        wait_until(lambda: secured.channel("t", "c")["in_flight_count"] == 0)
        shown = secured.channel("t", "c")["clients"][0]
        assert (shown["tls"], shown["deflate"], shown["snappy"]) == tuple(x in way for x in ("tls", "deflate", "snappy"))
        assert shown["user_agent"].startswith("nsqc/")
    assert {asked.facts["secret"] for asked in secured.auth.asked} == {"open sesame"}


def test_columns(daemon):
    node = daemon()
    with Connection(address(node)) as producer, Connection(address(node), tick_ns=1000) as consumer:
        consumer.subscribe("t", "c")
        consumer.ready(2500)
        producer.publish_many("t", [b"%d" % n * (n % 7 + 1) for n in range(5000)])
        found, began = [], time.time()
        while len(found) < 5000:
            batch = consumer.receive_batch(WAIT_SECONDS)
            offsets = memoryview(batch.offsets).cast("B").cast("i")
            bodies = bytes(batch.bodies)
            found += [bodies[offsets[n]:offsets[n + 1]] for n in range(batch.count)]
            times = memoryview(batch.timestamps).cast("B").cast("q")
            assert len(times) == batch.count and all(abs(time_us / 1e6 - began) < 60 for time_us in times)
            assert set(memoryview(batch.attempts).cast("B").cast("i")) == {1}
            consumer.finish_ids(batch.ids)
        assert found == [b"%d" % n * (n % 7 + 1) for n in range(5000)]
        assert consumer.receive_batch(0.1) is None
        wait_until(lambda: node.channel("t", "c")["in_flight_count"] == 0)
        assert node.channel("t", "c")["depth"] == 0


def test_requeue_touch_and_answers_that_come_too_late(daemon):
    node = daemon()
    with Connection(address(node), msg_timeout_ms=3000) as connection:
        connection.publish_many("t", [b"again", b"touched", b"late"])
        connection.subscribe("t", "c")
        connection.ready(3)
        first = {message.body: message for message in take(connection, 3)}
        first[b"again"].requeue(100)
        first[b"again"].finish()
        for _ in range(2):
            time.sleep(1.7)
            first[b"touched"].touch()
            for message in connection.receive(0):
                assert message.attempts == 2
                message.finish()
        first[b"touched"].finish()
        first[b"late"].finish()
        wait_until(lambda: connection.receive(0.05) == [] and connection.failed_ids)
        assert connection.failed_ids == [first[b"late"].id]
        wait_until(lambda: node.channel("t", "c")["in_flight_count"] == 0)
        found = node.channel("t", "c")
        assert (found["depth"], found["requeue_count"], found["timeout_count"]) == (0, 1, 1)


def test_leaving_hands_everything_back_at_once(daemon):
    node = daemon()
    with Connection(address(node)) as producer:
        producer.publish_many("t", [b"%d" % n for n in range(1000)])
    with Connection(address(node)) as consumer:
        consumer.subscribe("t", "c")
        consumer.ready(500)
        for message in take(consumer, 10)[:5]:
            message.finish()
    found = node.channel("t", "c")
    assert (found["depth"], found["in_flight_count"], found["clients"]) == (995, 0, [])


def test_heartbeats_are_answered(daemon):
    node = daemon()
    with Connection(address(node), heartbeat_interval_ms=1000) as producer, \
            Connection(address(node), heartbeat_interval_ms=1000) as consumer:
        consumer.subscribe("t", "c")
        until = time.monotonic() + 3.5
        while time.monotonic() < until:
            assert consumer.receive(0.3) == []
            producer.ping()
        producer.publish("t", b"x")
        consumer.ready(1)
        assert take(consumer, 1)[0].body == b"x"


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize("call,error,text", [
    (lambda c: c.publish("bad topic!", b"x"), BadName, "topic 'bad topic!'"),
    (lambda c: c.publish("t" * 65, b"x"), BadName, "1 to 64"),
    (lambda c: c.subscribe("t", ""), BadName, "channel ''"),
    (lambda c: c.publish("t", b""), BadMessage, "message 0: is empty"),
    (lambda c: c.publish_many("t", [b"x", b"y" * 101]), BadMessage, "message 1: has 101 bytes, 100 are allowed"),
    (lambda c: c.publish_many("t", [b"x", "text"]), TypeError, "message 1 is str"),
    (lambda c: c.publish_deferred_many("t", [b"x", b""], 5), BadMessage, "message 1: is empty"),
])
def test_what_nsqd_would_refuse_is_not_sent(daemon, call, error, text):
    node = daemon("--max-msg-size=100")
    with Connection(address(node), max_msg_size=100) as connection:
        with pytest.raises(error, match=text):
            call(connection)
        connection.publish("t", b"y" * 100)
    assert node.stats("t")["message_count"] == 1


def test_the_largest_message_with_a_small_body_limit(daemon):
    node = daemon("--max-msg-size=1000", "--max-body-size=1000")
    with Connection(address(node), max_msg_size=1000, max_body_size=1000) as connection:
        connection.publish_many("t", [b"x" * 992])
        with pytest.raises(BadMessage, match="992 are allowed"):
            connection.publish_many("t", [b"x" * 993])


def test_errors_of_nsqd_keep_their_code(daemon):
    connection = Connection(address(daemon("--max-req-timeout=1s")))
    with pytest.raises(Refused, match="E_INVALID DPUB timeout 5000 out of range") as caught:
        connection.publish_deferred("t", b"x", 5000)
    assert caught.value.code == "E_INVALID"
    with pytest.raises(ConnectError):
        connection.publish("t", b"x")
    connection.close()
    with pytest.raises(Closed):
        connection.publish("t", b"x")
    connection.leave()


def test_auth(daemon, authd):
    node = daemon(f"--auth-http-address={authd(reply(authorizations=[])).address}")
    with pytest.raises(AuthError, match="there is no auth_secret"):
        Connection(address(node))
    with pytest.raises(AuthError, match="E_UNAUTHORIZED"):
        Connection(address(node), auth_secret=b"wrong")


def test_what_nsqd_does_not_offer(daemon, certs):
    node = daemon("--snappy=false")
    with pytest.raises(ConnectError, match="does not offer snappy"):
        Connection(address(node), snappy=True)
    with pytest.raises(ConnectError, match="does not offer tls"):
        Connection(address(node), tls=True)
    with pytest.raises(ValueError, match="exclude each other"):
        Connection(address(node), snappy=True, deflate=1)


def test_an_unknown_certificate_is_not_trusted(secured, certs):
    with pytest.raises(ConnectError, match="certificate verify failed: self-signed certificate"):
        Connection(address(secured), tls=True, auth_secret="x")
    Connection(address(secured), tls=tls(verify=False), auth_secret="x").close()


# ---------------------------------------------------------------------- servers that are not nsqd


@pytest.mark.parametrize("answers,text", [
    ((b"HTTP/1.1 400 Bad Request\r\n\r\n",), r"this is an HTTP port \(nsqd's is 4151, nsqlookupd's 4161 by default\), not nsqd's TCP port \(4150 by default\)"),
    ((b"\x15\x03\x01\0\2\2\x46",), "this is a TLS port, not nsqd's TCP port|reset"),
    ((b"\0\0\0\x0eE_BAD_PROTOCOL",), "this is nsqlookupd's TCP port, not nsqd's TCP port"),
    ((frame(0, b"OK"),), "not an nsqd"),
    ((frame(0, nested.OBJECT),), "not an nsqd"),
    ((), "closed by nsqd|reset"),
    ((IDENTIFIED[:9],), "closed by nsqd|reset"),
])
def test_servers_that_are_no_nsqd(answers, text):
    with pytest.raises(ConnectError, match=text):
        Connection(serve(*answers), timeout=WAIT_SECONDS)


@pytest.mark.parametrize("answer,text", [
    (struct.pack(">ii", 1 << 30, 2), "a frame of 1073741824 bytes"),
    (struct.pack(">ii", 3, 2), "a frame of 3 bytes"),
    (frame(2, b"short"), "a message of 5 bytes"),
])
def test_frames_that_are_none(answer, text):
    connection = Connection(serve(IDENTIFIED, answer, hold=1), timeout=WAIT_SECONDS)
    with pytest.raises(ConnectError, match=text):
        connection.receive(WAIT_SECONDS)
    connection.close()


@pytest.mark.parametrize("size", SIZES)
def test_a_hostile_size_ends_the_connection_at_once(size):
    """The first four bytes are enough to tell."""
    connection = Connection(serve(IDENTIFIED, struct.pack(">i", size), hold=60), timeout=60)
    with pytest.raises(ConnectError, match=f"a frame of {size} bytes"):
        connection.receive(60)
    connection.close()


def test_no_answer_in_time():
    with pytest.raises(NoAnswer, match="no answer in time"):
        Connection(serve(hold=WAIT_SECONDS), timeout=0.2)
    connection = Connection(serve(IDENTIFIED, hold=WAIT_SECONDS), timeout=0.2)
    with pytest.raises(NoAnswer):
        connection.publish("t", b"x")
    connection.close()
