"""Rules of channels: config file, GET and PUT /channel/rules, `nsqc channel rules`, checks, and their end."""

import json
import signal
import subprocess
import sys

import pytest

from nsqc.options.check import examine
from nsqc.options.rule_tables import CHANNEL_FLAGS, DEFAULT
from tests.rules.support import publish, set_rule, subscribe, until_channel
from tests.support.daemon import logged, wait_until

CONFIG = """\
[channels."orders.*/billing"]
requeue_delay = "2s"
requeue_backoff = 2.5
[channels."*/*#ephemeral"]
requeue_on_disconnect = true
[channels."*"]
requeue_max = "5m"
"""


def get(node, topic: str, channel: str) -> dict:
    status, body = node.http("GET", f"/channel/rules?topic={topic}&channel={channel.replace('#', '%23')}")
    assert status == 200, body
    return json.loads(body)


def put(node, topic: str, channel: str, body: bytes) -> tuple[int, dict]:
    status, answer = node.http("PUT", f"/channel/rules?topic={topic}&channel={channel.replace('#', '%23')}", body)
    return status, json.loads(answer)


def test_defaults(daemon):
    node = daemon()
    rule = get(node, "t", "c")
    assert rule["source"] == "default" and rule["requeue_delay"] == "0s" and rule["requeue_backoff"] == 1.0
    assert set(rule) == {"topic", "channel", "source", *CHANNEL_FLAGS}
    assert node.stats()["topics"] == [], "to ask creates nothing"


def test_the_first_table_that_fits_counts_and_a_reload_changes_it(daemon, tmp_path):
    path = tmp_path / "nsqc.cfg"
    path.write_text(CONFIG)
    node = daemon(f"--config={path}")
    rule = get(node, "orders.eu", "billing")
    assert (rule["requeue_delay"], rule["requeue_backoff"], rule["requeue_max"]) == ("2s", 2.5, "1h0m0s")
    assert rule["source"] == 'config [channels."orders.*/billing"]'
    assert get(node, "orders.eu", "other")["requeue_max"] == "5m0s"
    assert get(node, "t", "x#ephemeral")["requeue_on_disconnect"] is True
    client = subscribe(node, "orders.eu", "billing")
    assert node.channel("orders.eu", "billing")["rules"] == {"requeue_delay": "2s", "requeue_backoff": 2.5}
    path.write_text('[channels."orders.eu/b*"]\nrequeue_delay = "10m"\n')
    node.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "options changed\n" in node.log)
    logged(node, '[channels."orders.eu/b*"] is now requeue_delay = 10m0s')
    until_channel(node, "orders.eu", "billing", rules={"requeue_delay": "10m0s"})
    publish(node, "orders.eu", b"x")
    client.command(f"REQ {client.message().id.decode()} 0")
    until_channel(node, "orders.eu", "billing", deferred_count=1)


def test_what_was_put_survives_a_kill_and_goes_with_the_channel(daemon):
    node = daemon()
    subscribe(node, "t").close()
    rule = set_rule(node, "t", "c", requeue_delay="3s", requeue_on_disconnect=True)
    assert rule["source"] == "PUT /channel/rules" and rule["requeue_delay"] == "3s"
    set_rule(node, "t", "c", requeue_on_disconnect=None)
    node.kill()
    node.start()
    assert get(node, "t", "c") == {**rule, "requeue_on_disconnect": False}
    node.post("/channel/create?topic=t&channel=c")
    assert node.channel("t", "c")["rules"] == {"requeue_delay": "3s"}
    node.post("/channel/delete?topic=t&channel=c")
    assert get(node, "t", "c")["source"] == "default"
    set_rule(node, "t", "c", requeue_delay="4s")
    set_rule(node, "tt", "c", requeue_delay="5s")
    node.post("/topic/create?topic=t")
    node.post("/topic/delete?topic=t")
    assert get(node, "t", "c")["source"] == "default"
    assert get(node, "tt", "c")["requeue_delay"] == "5s"
    node.restart()
    assert get(node, "t", "c")["source"] == "default"


@pytest.mark.parametrize(("body", "text"), [
    (b'{"requeue_delay": -1}', "requeue_delay = -1 cannot be used - requeue_delay must be at least 0s, not -1ns"),
    (b'{"requeue_delay": "x"}', 'requeue_delay = "x" cannot be used'),
    (b'{"requeue_backoff": 0.5}', "requeue_backoff = 0.5 cannot be used - requeue_backoff must be at least 1, not 0.5"),
    (b'{"requeue_backoff": "2"}', 'requeue_backoff = "2" cannot be used - a number is expected'),
    (b'{"requeue_on_disconnect": 1}', "requeue_on_disconnect = 1 cannot be used - true or false is expected"),
    (b'{"requeue_dely": 1}', "unknown key 'requeue_dely', did you mean requeue_delay?"),
    (b"[]", "the body cannot be used"),
])
def test_what_cannot_be_used_is_named(daemon, body, text):
    node = daemon()
    status, answer = put(node, "t", "c", body)
    assert status == 400 and answer["message"].startswith(text)
    assert get(node, "t", "c")["source"] == "default"


def test_names_are_checked(daemon):
    node = daemon()
    assert node.http("GET", "/channel/rules")[1] == b'{"message":"MISSING_ARG_TOPIC"}'
    assert node.http("GET", "/channel/rules?topic=t")[1] == b'{"message":"MISSING_ARG_CHANNEL"}'
    assert node.http("GET", "/channel/rules?topic=t&channel=a%2Fb")[1] == b'{"message":"INVALID_CHANNEL"}'
    status, answer = put(node, "t", "x#ephemeral", b"{}")
    assert status == 400 and "ephemeral" in answer["message"]


def test_a_damaged_file_is_kept(daemon):
    node = daemon()
    set_rule(node, "t", "c", requeue_delay="1s")
    assert node.stop() == 0
    path = node.data_path / "nsqc.channel-rules.json"
    content = path.read_bytes()
    assert json.loads(content) == {"channels": {"t/c": {"requeue_delay": 10**9}}}
    path.write_bytes(content.replace(b'"t/c"', b'"bad name":{},"t/c"'))
    node.start()
    assert get(node, "t", "c")["requeue_delay"] == "1s"
    assert path.with_name("nsqc.channel-rules.json.bad").exists()
    logged(node, "is damaged")


def test_the_command_line(daemon):
    node = daemon()

    def call(*words: str) -> tuple[int, str]:
        done = subprocess.run([sys.executable, "-m", "nsqc", "channel", "rules", "t", "c",
                               f"--nsqd=127.0.0.1:{node.tcp_port}", f"--http=127.0.0.1:{node.http_port}", *words],
                              capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    code, text = call()
    assert code == 0, text
    assert "REQUEUE DELAY" in text and "default" in text
    code, text = call("--requeue-delay", "1s", "--requeue-backoff", "2", "--requeue-on-disconnect", "true", "--json")
    assert code == 0, text
    assert json.loads(text)["requeue_delay"] == "1s" and json.loads(text)["requeue_on_disconnect"] is True
    assert get(node, "t", "c")["requeue_backoff"] == 2.0
    assert call("--reset")[0] == 0 and get(node, "t", "c")["source"] == "default"
    assert call("--reset", "--requeue-max", "1s")[0] != 0


def test_check_finds_what_is_wrong(tmp_path):
    path = tmp_path / "nsqc.cfg"
    path.write_text('[channels."a/*"]\nrequeue_delay = "x"\n[channels."nothing"]\n[channels."a/b"]\n'
                    '[channels.x.y]\nrequeue_max = "1s"\n')
    found = [(line, fatal, text.partition(" cannot")[0]) for line, fatal, text in examine(str(path)).findings if line]
    assert (2, True, "[channels.\"a/*\"]: requeue_delay = 'x'") in found
    assert (3, False, '[channels."nothing"] has no effect: it fits no TOPIC/CHANNEL with valid names') in found
    assert (4, False, '[channels."a/b"] has no effect: [channels."a/*"], which comes first, fits all of its channels'
            ) in found
    assert any(fatal and "a glob with a slash needs quotes" in text for _, fatal, text in found)


def test_defaults_are_off():
    assert DEFAULT.is_off and DEFAULT.as_json() == {}
