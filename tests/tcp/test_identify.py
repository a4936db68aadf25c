"""IDENTIFY: its JSON as Go reads it, and the effect of a second one."""

import json
import struct
import time

import pytest

from tests.support.patience import WAIT_SECONDS
from tests.support.secure import identify


def identified(node, body: bytes) -> tuple[object, dict]:
    """The answer, and the client's resulting statistics."""
    client = node.connect()
    client.command("IDENTIFY", body)
    kind, data = client.frame()
    assert kind == 0, data
    client.sub("t", "c")
    return data, node.channel("t", "c")["clients"][-1]


@pytest.mark.parametrize("body,shown", [
    (b'{"CLIENT_ID": "a", "HostName": "b", "User_Agent": "c"}', ("a", "b", "c")),
    (b'{"client_id": "a\xff", "hostname": "\\ud800", "user_agent": "\xed\xa0\x80"}', ("a�", "�", "���")),
    (b'{"client_id": null, "hostname": null, "user_agent": null, "heartbeat_interval": null}', ("", "", "")),
    (b"null", ("", "", "")),
    (b'{"client_id": "' + b"x" * 2000 + b'", "user_agent": "' + b"y" * 30000 + b'"}', ("x" * 1024, "", "y" * 1024)),
    (b'{"x": ' + b"[" * 9000 + b"]" * 9000 + b', "client_id": "deep"}', ("deep", "", "")),
])
def test_names(daemon, body, shown):
    answer, client = identified(daemon(), body)
    assert answer == b"OK"
    assert (client["client_id"], client["hostname"], client["user_agent"]) == shown


def test_features_whatever_the_case_of_their_names(daemon):
    answer, client = identified(daemon(), b'{"FEATURE_NEGOTIATION": true, "Msg_Timeout": 5000, "SAMPLE_RATE": 7}')
    answer = json.loads(answer)
    assert (answer["msg_timeout"], answer["sample_rate"], client["sample_rate"]) == (5000, 7, 7)


@pytest.mark.parametrize("body", [
    b'{"heartbeat_interval": 1000.0}', b'{"heartbeat_interval": 1e3}', b'{"heartbeat_interval": "1000"}',
    b'{"heartbeat_interval": 9223372036854775808}', b'{"sample_rate": 2147483648}', b'{"client_id": 1}', b"[]", b"{} {}",
    b'{"x": NaN}', b"\xef\xbb\xbf{}",
])
def test_refused(daemon, body):
    client = daemon().connect()
    client.command("IDENTIFY", body)
    assert client.frame() == (1, b"E_BAD_BODY IDENTIFY failed to decode JSON body")
    assert client.frame() is None


# ---------------------------------------------------------------------- a second IDENTIFY


def raw_frames(client, seconds: float) -> list[bytes]:
    """The data of all frames within this time, heartbeats included and unanswered; ends with the connection."""
    found, kept = [], client._kept
    client._kept = b""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        client.sock.settimeout(left)
        try:
            more = client.sock.recv(65536)
        except TimeoutError:
            break
        if not more:
            found.append(b"END")
            break
        kept += more
        while len(kept) >= 4 and len(kept) >= 4 + (size := struct.unpack_from(">i", kept)[0]):
            found.append(kept[8:4 + size])
            kept = kept[4 + size:]
    return found


def twice(node, first: dict, second: dict):
    client = node.connect()
    for wanted in (first, second):
        answer = identify(client, **wanted)
    return client, answer


def test_heartbeats_come_at_the_pace_of_the_first(daemon):
    client, answer = twice(daemon(), {"heartbeat_interval": 1000}, {"heartbeat_interval": 50_000})
    assert answer["version"]
    assert raw_frames(client, 4.5).count(b"_heartbeat_") >= 3


def test_no_heartbeats_come_where_the_first_wants_none_but_silence_counts(daemon):
    client, _ = twice(daemon(), {"heartbeat_interval": -1}, {"heartbeat_interval": 1000})
    client.sub("t", "c")
    assert raw_frames(client, 10) == [b"END"]


def test_a_slow_pace_and_a_short_patience(daemon):
    client, _ = twice(daemon(), {"heartbeat_interval": 60_000}, {"heartbeat_interval": 1000})
    assert raw_frames(client, 10) == [b"END"]


def test_heartbeats_go_on_where_the_second_wants_none(daemon):
    client, _ = twice(daemon(), {"heartbeat_interval": 1000}, {"heartbeat_interval": -1})
    # Unanswered, because silence no longer counts.
    assert raw_frames(client, 5.5).count(b"_heartbeat_") >= 4
    client.command("SUB t c")
    assert client.frame() == (1, b"E_INVALID cannot SUB with heartbeats disabled")


def test_time_outs_of_messages_are_those_of_the_first_and_touch_goes_by_the_second(daemon):
    node = daemon()
    client, answer = twice(node, {"msg_timeout": 1000}, {"msg_timeout": 60_000})
    assert answer["msg_timeout"] == 60_000
    client.sub("t", "c", 1)
    node.connect().pub("t", b"x")
    assert client.message().attempts == 1
    again = client.message(WAIT_SECONDS)
    assert again.attempts == 2
    client.send(b"TOUCH " + again.id + b"\n")
    assert client.quiet(3)


def test_sample_rates_are_those_of_the_first(daemon):
    node = daemon()
    client, answer = twice(node, {"sample_rate": 0}, {"sample_rate": 1})
    assert answer["sample_rate"] == 1
    client.sub("t", "c", 200)
    node.connect().pub("t", *[b"x"] * 100)
    assert len(client.messages(100)) == 100
    assert node.channel("t", "c")["clients"][0]["sample_rate"] == 1
