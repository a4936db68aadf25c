"""IDENTIFY: its JSON as Go reads it, and what a second one changes."""

import json

import pytest


def identified(node, body: bytes) -> tuple[object, dict]:
    """The answer, and what statistics then tell of the client."""
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
