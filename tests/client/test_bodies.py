"""Publishable values: kinds of bodies and batches, the same in both clients."""

import array
import asyncio

import pytest

from nsqc.client import BadMessage, BadName, Producer, PublishFailed, aio, with_headers
from nsqc.client.envelope import parted
from tests.client.conftest import address
from tests.client.test_consumer import drained

NOBODY = "127.0.0.1:9"


class Blocking:
    """The asyncio producer, used like the blocking one."""

    def __init__(self, *args, **options):
        self._runner = asyncio.Runner()
        self._producer = aio.Producer(*args, **options)

    def __getattr__(self, name):
        return lambda *args, **more: self._runner.run(getattr(self._producer, name)(*args, **more))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._runner.run(self._producer.close())
        self._runner.close()


class Failing:
    """Gives two bodies, then raises."""

    def __iter__(self):
        yield from (b"a", b"b")
        raise ZeroDivisionError("division")


@pytest.fixture(params=[Producer, Blocking], ids=["blocking", "asyncio"])
def kind(request):
    return request.param


def test_kinds_of_bodies(daemon, kind):
    node = daemon()
    numbers = array.array("i", [1, 2, 3])
    bodies = [b"bytes", bytearray(b"bytearray"), memoryview(b"view"), memoryview(b"every second")[::2], memoryview(numbers),
              memoryview(b"abcdef").cast("B", (2, 3)), type("Mine", (bytes,), {})(b"mine")]
    wanted = [b"bytes", b"bytearray", b"view", b"eeyscn", numbers.tobytes(), b"abcdef", b"mine"]
    with kind(address(node)) as producer:
        for body in bodies:
            producer.publish("t", body)
        producer.publish_many("t", bodies)
        producer.publish_many("t", (body for body in bodies))
        producer.publish_many("t", dict.fromkeys(wanted))
        producer.publish_deferred("t", bodies[1], 1)
        producer.publish_deferred_many("t", iter(bodies), 1)
    assert drained(node, 5 * len(wanted) + 1) == sorted(wanted * 5 + [b"bytearray"])


@pytest.mark.parametrize("bodies,error,text", [
    (["text"], TypeError, r"message 0 is str, not bytes: encode it"),
    ([b"a", 1], TypeError, "message 1 is int, not bytes, bytearray or memoryview"),
    ([b"a", None], TypeError, "message 1 is NoneType"),
    (b"abc", TypeError, "bodies is bytes: it takes an iterable of bodies"),
    ("abc", TypeError, "bodies is str"),
    (7, TypeError, "'int' object is not iterable"),
    ([b"a", b""], BadMessage, "message 1: is empty"),
    ([bytearray(101)], BadMessage, "message 0: has 101 bytes, 100 are allowed"),
    (Failing(), ZeroDivisionError, "division"),
])
def test_nothing_is_sent_of_what_is_wrong(kind, bodies, error, text):
    """No connection is attempted: no server exists."""
    with kind(NOBODY, max_msg_size=100, retries=0) as producer:
        with pytest.raises(error, match=text):
            producer.publish_many("t", bodies)
        if isinstance(bodies, list):
            with pytest.raises(error, match=text):
                producer.publish_deferred_many("t", bodies, 0)
            with pytest.raises(error):
                producer.publish("t", bodies[-1])
        producer.publish_many("t", [])
        producer.publish_many("t", iter(()))
        producer.publish_deferred_many("t", (), 0)
        with pytest.raises(BadName):
            producer.publish_many("bad topic", [])
        for wrong in (-1, 1.5, "1"):
            with pytest.raises((ValueError, TypeError), match="delay_ms is"):
                producer.publish_deferred("t", b"x", wrong)
        for wrong in ({"window": 0}, {"batch_rows": 0}, {"batch_bytes": "1"}):
            with pytest.raises((ValueError, TypeError), match=f"{next(iter(wrong))} is"):
                producer.publish_many("t", [b"x"], **wrong)
        with pytest.raises(PublishFailed, match=r"given up after 1 try: .*(refused|Connect)"):
            producer.publish("t", b"x")


def test_a_mutable_body_is_copied_as_it_is_given(daemon, kind):
    node = daemon()
    body = bytearray(b"as it was")

    def bodies():
        yield body
        body[:] = b"something"
        yield body
        body.clear()
        body.extend(b"z")

    with kind(address(node)) as producer:
        producer.publish_many("t", bodies())
        body.extend(b"resizes: nobody holds its buffer")
    assert drained(node, 2) == [b"as it was", b"something"]


def test_large_ones(daemon, kind):
    node = daemon("--max-msg-size=5242872", "--max-body-size=5242880")
    sizes = [65_536, 1_048_576, 3_000_000, 5_242_872 - 8]
    with kind(address(node), max_msg_size=5_242_872) as producer:
        producer.publish_many("t", [bytes([at]) * size for at, size in enumerate(sizes)])
        for at, size in enumerate(sizes):
            producer.publish("t", bytes([at]) * size)
    found = drained(node, 8, max_msg_size=5_242_872, max_in_flight=2)
    assert found == sorted(bytes([at]) * size for at, size in enumerate(sizes) for _ in range(2))


def test_a_hundred_thousand(daemon, kind):
    node = daemon()
    with kind(address(node)) as producer:
        producer.publish_many("t", (b"%d" % n for n in range(100_000)))
    assert drained(node, 100_000, max_in_flight=2500) == sorted(b"%d" % n for n in range(100_000))


def test_headers():
    """Of a body that follows the format; any other body is as it was."""
    headers = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "content-type": "application/json"}
    for body in (b"", b"\n\nx", b"x\0", with_headers(b"x", {})):
        for given in ({}, headers, {"a": "", "b": "x: ä"}):
            assert parted(with_headers(body, given)) == (given, body)
    assert with_headers(memoryview(b"{}"), {"content-type": "application/json"}) == b"NSQ-Headers/1\ncontent-type: application/json\n\n{}"
    for body in (b"", b"x", b"NSQ-Headers/1", b"NSQ-Headers/1\n", b"NSQ-Headers/1\na: b\n", b"NSQ-Headers/1\nno colon\n\nx", b"NSQ-Headers/1\na: b\na: c\n\nx", b"NSQ-Headers/2\n\nx"):
        assert parted(body) == ({}, body)
    for wrong, text in (({"A": "b"}, "header 'A': a name has"), ({"": "b"}, "header ''"), ({"a": "b\nc: d"}, r"header 'a': its value 'b\\nc: d' has a control")):
        with pytest.raises(ValueError, match=text):
            with_headers(b"x", wrong)
