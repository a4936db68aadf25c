"""Plain publishes: the targets and heads that are recognised and remembered."""

import pytest

from nsqc.httpd.site import KnownPublishes, learn, plain_topic
from tests.httpd.wire import request

HEAD = request("POST", "/pub?topic=t", b"12345")[:-5]


def test_a_plain_target():
    assert plain_topic(b"/pub?topic=a.b-c_1#ephemeral") == b"a.b-c_1#ephemeral"


@pytest.mark.parametrize("target", [
    b"/pub", b"/pub?topic=", b"/pub?topic=a&defer=1", b"/pub?topic=a%20", b"/pub?topic=a+b", b"/PUB?topic=a",
    b"/mpub?topic=a", b"/pub/?topic=a", b"/pub?topic=" + b"a" * 65, b"/pub?x=1&topic=a",
])
def test_other_targets(target):
    known = KnownPublishes()
    assert plain_topic(target) is None
    assert known.find_topic(target) is None
    assert known.targets == {}


def test_a_head_is_learned():
    known = KnownPublishes()
    learn(known.heads, HEAD, b"t", 5)
    assert known.heads == {HEAD: (b"t", 5)}
    known.forget_heads()
    assert known.heads == {}


@pytest.mark.parametrize("head", [
    HEAD.replace(b"\r\n", b"\n"),
    HEAD[:-3] + b"\n",
    request("POST", "/pub?topic=t", b"12345", "X: " + "y" * 1024 + "\r\n")[:-5],
], ids=["line feeds", "a line feed", "large"])
def test_heads_that_are_not_learned(head):
    known = KnownPublishes()
    learn(known.heads, head, b"t", 5)
    assert known.heads == {}


def test_full_memories_start_over():
    known = KnownPublishes()
    for number in range(4097):
        topic = b"t%d" % number
        assert known.find_topic(b"/pub?topic=" + topic) == topic
        learn(known.heads, request("POST", f"/pub?topic=t{number}", b"12345")[:-5], topic, 5)
    assert list(known.targets) == [b"/pub?topic=t4096"]
    assert len(known.heads) == 1
