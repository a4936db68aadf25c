"""GET and PUT /topic/rules: how topics are stored, and where each setting comes from."""

import json
import signal
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.daemon import Daemon, wait_until

FILE = "nsqc.rules.json"
DEFAULT = {"storage": "memory", "sync": "write", "retain_time": "0s", "retain_bytes": 0, "retain_local_bytes": 0,
           "overflow": "refuse", "message_ttl": "0s", "expired": "drop", "max_depth": 0, "max_bytes": 0, "dedupe": "0s",
           "dedupe_ids": 1_000_000, "source": "default"}
CONFIG = """\
log_sync = "fsync"
[topics."orders.*"]
storage = "log"
retain_time = "24h"
[topics."orders.eu"]
storage = "memory"
[topics."*"]
retain_bytes = 5
"""


def get(node, topic: str) -> dict:
    status, body = node.http("GET", f"/topic/rules?topic={topic.replace('#', '%23')}")
    assert status == 200, body
    answer = json.loads(body)
    assert answer.pop("topic") == topic
    return answer


def put(node, topic: str, changes) -> tuple[int, dict]:
    body = changes if isinstance(changes, bytes) else json.dumps(changes).encode()
    status, answer = node.http("PUT", f"/topic/rules?topic={topic.replace('#', '%23')}", body)
    return status, json.loads(answer)


def changed(node, topic: str, changes) -> dict:
    status, answer = put(node, topic, changes)
    assert status == 200, answer
    assert answer.pop("topic") == topic
    return answer


@pytest.fixture
def configured(daemon, tmp_path):
    """A daemon with CONFIG, and a function that replaces the file and sends SIGHUP."""
    path = tmp_path / "nsqc.cfg"
    path.write_text(CONFIG)
    node = daemon(f"--config={path}")

    def reload(text: str) -> list[str]:
        known = len(node.log)
        path.write_text(text)
        node.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "options changed\n" in node.log[known:] or "no option is changed" in node.log[known:])
        return [line.split(": RELOAD: ")[1] for line in node.log[known:].splitlines() if ": RELOAD: " in line]

    return node, reload


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """A daemon for calls that change nothing."""
    node = Daemon(tmp_path_factory.mktemp("asked") / "data")
    yield node
    assert node.stop() == 0


# ---------------------------------------------------------------------- sources of rules


def test_durations_have_days(daemon, tmp_path):
    """In flags, config files, rules, and arguments of calls."""
    (tmp_path / "nsqc.cfg").write_text('msg_timeout = "1d"\nmax_msg_timeout = "7d"\n[topics."week"]\nretain_time = "7d"\n')
    node = daemon(f"--config={tmp_path}/nsqc.cfg", "--log-retain-time=1d12h")
    assert get(node, "week")["retain_time"] == "168h0m0s"
    assert get(node, "other")["retain_time"] == "36h0m0s"
    assert changed(node, "other", {"retain_time": "2d"})["retain_time"] == "48h0m0s"
    state = json.loads(node.http("POST", "/drain?keep=true&timeout=1d")[1])
    assert 86_390 < state["deadline"] - state["since"] < 86_410


def test_defaults_and_flags(daemon):
    node = daemon()
    assert get(node, "t") == DEFAULT
    assert node.stop() == 0
    node.start("--topic-storage=log", "--log-sync=fsync", "--log-retain-time=90m", "--log-retain-bytes=1000",
               "--log-overflow=drop-oldest")
    assert get(node, "t") == {**DEFAULT, "storage": "log", "sync": "fsync", "retain_time": "1h30m0s", "retain_bytes": 1000,
                              "overflow": "drop-oldest"}
    assert get(node, "t#ephemeral")["storage"] == "memory"
    assert get(node, "t#ephemeral")["source"] == "ephemeral"
    assert node.http("GET", "/config/topic_storage") == (200, b"log")
    assert node.http("GET", "/config/topics")[0] == 400


def test_the_first_table_that_fits_counts(configured):
    node, _ = configured
    orders = {**DEFAULT, "storage": "log", "sync": "fsync", "retain_time": "24h0m0s",
              "source": 'config [topics."orders.*"]'}
    assert get(node, "orders.eu") == get(node, "orders.") == orders
    rest = {**DEFAULT, "sync": "fsync", "retain_bytes": 5, "source": 'config [topics."*"]'}
    assert get(node, "orders") == get(node, "Orders.eu") == rest
    assert node.http("GET", "/topic/rules?topic=orders.eu")[0] == 200
    assert node.stats()["topics"] == [], "to ask creates no topic"


def test_a_reload_changes_rules_but_not_what_was_put(configured):
    node, reload = configured
    changed(node, "orders.put", {"sync": "write"})
    lines = reload('log_retain_time = "1h"\n[topics."*"]\nretain_bytes = 6\n[topics."orders.*"]\n'
                   'storage = "log"\nretain_time = "24h"\n')
    assert lines == [
        '[topics."orders.eu"] is gone', '[topics."*"] is now retain_bytes = 6', "the topic tables have another order",
        "log_sync is now write", "log_retain_time is now 1h0m0s", "3 options changed"]
    everywhere = {**DEFAULT, "retain_bytes": 6, "retain_time": "1h0m0s", "source": 'config [topics."*"]'}
    assert get(node, "orders.eu") == everywhere
    assert get(node, "orders.put") == {**everywhere, "source": "PUT /topic/rules"}
    line, = reload('[topics."*"]\nretain_bytes = -1\n')
    assert line.startswith("no option is changed, the old ones stay - config file ")
    assert line.endswith('[topics."*"]: retain_bytes must be at least 0, not -1')
    assert get(node, "orders.eu") == everywhere
    assert reload("")[-1] == "2 options changed"
    assert get(node, "orders.eu") == DEFAULT


# ---------------------------------------------------------------------- PUT


def test_put_wins_is_remembered_and_can_be_taken_back(configured):
    node, _ = configured
    before = get(node, "orders.eu")
    assert changed(node, "orders.eu", {}) == before
    assert not (node.data_path / FILE).exists()
    after = changed(node, "orders.eu", {"retain_time": "90s", "overflow": "drop-oldest"})
    assert after == {**before, "retain_time": "1m30s", "overflow": "drop-oldest", "source": "PUT /topic/rules"}
    assert stat.S_IMODE((node.data_path / FILE).stat().st_mode) == 0o600
    node.kill()
    node.start()
    assert get(node, "orders.eu") == after
    assert changed(node, "orders.eu", {"retain_time": None, "sync": None}) == {
        **before, "overflow": "drop-oldest", "source": "PUT /topic/rules"}
    assert changed(node, "orders.eu", {"overflow": None}) == before
    assert json.loads((node.data_path / FILE).read_text()) == {"topics": {}}
    assert changed(node, "other", {"retain_time": 1_500_000_000})["retain_time"] == "1.5s"
    node.restart()
    assert get(node, "orders.eu") == before
    assert get(node, "other")["retain_time"] == "1.5s"


def test_the_rule_of_a_deleted_topic_goes_with_it(daemon):
    node = daemon()
    for topic in ("kept", "gone"):
        node.post(f"/topic/create?topic={topic}")
        changed(node, topic, {"sync": "fsync"})
    node.post("/topic/delete?topic=gone")
    assert json.loads((node.data_path / FILE).read_text()) == {"topics": {"kept": {"sync": "fsync"}}}
    assert get(node, "gone") == DEFAULT
    node.kill()
    node.start()
    assert get(node, "gone") == DEFAULT
    assert get(node, "kept")["source"] == "PUT /topic/rules"


def test_a_thousand_rules(daemon):
    """Each is on disk before it is answered."""
    node = daemon()
    names = [f"topic.{number}" for number in range(1000)]

    def put_some(some):
        for name in some:
            assert put(node, name, {"retain_bytes": int(name[6:]) + 1})[0] == 200

    with ThreadPoolExecutor(16) as clients:
        list(clients.map(put_some, [names[at::16] for at in range(16)]))
    node.kill()
    node.start()
    assert [get(node, name)["retain_bytes"] for name in names[::97]] == [int(name[6:]) + 1 for name in names[::97]]
    assert len(json.loads((node.data_path / FILE).read_text())["topics"]) == len(names)


def test_changes_at_the_same_time_are_all_kept(daemon):
    """They share writes; each key of each topic ends with one of the values put."""
    node = daemon()
    with ThreadPoolExecutor(16) as clients:
        list(clients.map(lambda n: changed(node, f"t{n % 4}", {"retain_bytes": n + 1} if n % 2 else {"sync": "fsync"}),
                         range(200)))
    before = [get(node, f"t{number}") for number in range(4)]
    assert [rule["sync"] for rule in before] == ["fsync", "write", "fsync", "write"]
    assert [rule["retain_bytes"] % 4 for rule in before] == [0, 2, 0, 0]
    node.kill()
    node.start()
    assert [get(node, f"t{number}") for number in range(4)] == before


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize("query", ["", "?topic", "?topic=", "?topic=a%20b", "?topic=a%00", "?topic=%C3%A9", "?topic=a:b",
                                   "?topic=" + 65 * "a", "?topic=%23ephemeral", "?topic=../x", "?topic=a/b"])
def test_topics_that_have_no_rules(asked, query):
    reason = "INVALID_TOPIC" if query else "MISSING_ARG_TOPIC"
    for method, body in (("GET", None), ("PUT", b'{"sync": "fsync"}')):
        assert asked.http(method, f"/topic/rules{query}", body) == (400, b'{"message":"%b"}' % reason.encode())


@pytest.mark.parametrize(("body", "reason"), [
    ({"storage": "disk"}, 'storage = "disk" cannot be used - one of memory, log is expected'),
    ({"storage": ["log"]}, 'storage = ["log"] cannot be used - one of memory, log is expected'),
    ({"sync": True}, "sync = true cannot be used - one of write, fsync, bucket is expected"),
    ({"overflow": ""}, 'overflow = "" cannot be used - one of refuse, drop-oldest, dead-letter is expected'),
    ({"retain_time": "1 h"}, "retain_time = \"1 h\" cannot be used - '1 h' is not a duration such as 250ms, 1h30m or 7d"),
    ({"retain_time": -1}, "retain_time = -1 cannot be used - retain_time must be at least 0s, not -1ns"),
    ({"retain_time": 2**63 - 1}, "must be at most 876000h0m0s"),
    ({"retain_time": 1.5}, "retain_time = 1.5 cannot be used - a duration such as"),
    ({"retain_bytes": -1}, "retain_bytes = -1 cannot be used - retain_bytes must be at least 0, not -1"),
    ({"retain_bytes": "5"}, 'retain_bytes = "5" cannot be used - an integer is expected'),
    ({"retain_bytes": False}, "retain_bytes = false cannot be used - an integer is expected"),
    ({"retain_bytes": 2**63}, "retain_bytes = 9223372036854775808 cannot be used"),
    (b'{"retain_bytes": 1%b}' % (5000 * b"0"), "the body cannot be used - Integer value out of range"),
    ({"sync": "fsync", "retain-time": 5}, "unknown key 'retain-time', did you mean retain_time?"),
    ({"x" * 1000: 5}, f"unknown key {'x' * 64!r}, known are storage, sync, retain_time, retain_bytes, "
     "retain_local_bytes, overflow, message_ttl, expired, max_depth, max_bytes, dedupe, dedupe_ids"),
    ({"source": "me"}, "unknown key 'source'"),
    ({"sync": "y" * 1000}, 'sync = "yyy'),
    ([], "the body cannot be used - Expected `object`, got `array`"),
    (b"", "the body cannot be used - "),
    (b"{", "the body cannot be used - "),
    (b'{"sync": "fsync"} x', "the body cannot be used - "),
    (b'{"sync": NaN}', "the body cannot be used - "),
    (b'{"sync": "\xff"}', "the body cannot be used - "),
    (b'{"sync":' + 30_000 * b"[", "the body cannot be used - "),
    (b'{"sync":' + 30_000 * b'{"a":' + b"1" + 30_000 * b"}" + b"}", "the body cannot be used - "),
])
def test_values_that_cannot_be_used(asked, body, reason):
    status, answer = put(asked, "t", body)
    if len(body) > 64 * 1024:
        assert (status, answer["message"]) == (413, "BODY_TOO_BIG")
    else:
        assert status == 400 and reason in answer["message"], answer
        assert len(answer["message"]) < 300
    assert get(asked, "t") == DEFAULT
    assert not (asked.data_path / FILE).exists()


def test_ephemeral_topics_take_no_rule(asked):
    assert put(asked, "t#ephemeral", {"storage": "log"}) == (
        400, {"message": "topic = t#ephemeral: ephemeral topics are always kept in memory"})


def test_other_methods(asked):
    assert asked.http("POST", "/topic/rules?topic=t", b"{}") == (405, b'{"message":"METHOD_NOT_ALLOWED"}')
    assert put(asked, "t", b"{" + 70_000 * b" " + b"}") == (413, {"message": "BODY_TOO_BIG"})


# ---------------------------------------------------------------------- the file


def test_a_rule_that_cannot_be_written_is_refused_and_changes_nothing(daemon):
    """A folder occupies the name of the temporary file: that stops root, too."""
    node = daemon()
    changed(node, "t", {"sync": "fsync"})
    before, text = get(node, "t"), (node.data_path / FILE).read_text()
    obstacle = node.data_path / f"{FILE}.{node.pid}.tmp"
    obstacle.mkdir()
    assert put(node, "t", {"sync": "write"}) == (500, {"message": f"failed to write {FILE} - Is a directory"})
    assert put(node, "u", {"sync": "fsync"})[0] == 500
    assert (get(node, "t"), get(node, "u")) == (before, DEFAULT)
    assert (node.data_path / FILE).read_text() == text
    obstacle.rmdir()
    assert changed(node, "u", {"sync": "fsync"})["sync"] == "fsync"
    assert get(node, "t") == before


@pytest.mark.parametrize(("text", "kept"), [
    (b"", []), (b"{", []), (b"[]", []), (b'{"topics": 5}', []), (b"\xff\xfe", []), (5000 * b"[", []),
    (b'{"topics":{"t":' + 5000 * b'{"a":', []),
    (b'{"topics":{"t":{"sync":"fsync"},"u":{"sync":"x"},"a b":{"sync":"fsync"},"e#ephemeral":{}}}', ["t"]),
    (b'{"topics":{"t":{"sync":"fsync"},"u":{"retain_time":-1},"v":{"other":1}}}', ["t"]),
], ids=["empty", "half", "list", "number", "binary", "deep", "deep-rule", "entries", "values"])
def test_a_damaged_file_is_set_aside(daemon, tmp_path, text, kept):
    data_path = tmp_path / "data"
    data_path.mkdir()
    (data_path / FILE).write_bytes(text)
    node = daemon(data_path=data_path)
    assert (data_path / f"{FILE}.bad").read_bytes() == text
    wait_until(lambda: "is damaged" in node.log and f"{len(kept)} rules remain" in node.log)
    assert list(json.loads((data_path / FILE).read_text())["topics"]) == kept
    for topic in "tuv":
        assert (get(node, topic)["source"] == "PUT /topic/rules") == (topic in kept)


def test_files_that_an_editor_has_put_a_byte_order_mark_before(daemon, tmp_path):
    data_path = tmp_path / "data"
    data_path.mkdir()
    (data_path / FILE).write_bytes(b'\xef\xbb\xbf{"topics":{"t":{"sync":"fsync"}}}')
    (data_path / "nsqd.dat").write_bytes(b'\xef\xbb\xbf{"topics":[{"name":"t","paused":true,"channels":[]}],"version":"1.3.0"}')
    node = daemon(data_path=data_path)
    assert get(node, "t")["sync"] == "fsync"
    assert node.stats("t")["paused"]
    assert "damaged" not in node.log


def test_something_else_has_the_name_of_the_file(daemon, tmp_path):
    data_path = tmp_path / "data"
    (data_path / FILE).mkdir(parents=True)
    node = daemon(data_path=data_path)
    assert (data_path / f"{FILE}.bad").is_dir()
    assert changed(node, "t", {"sync": "fsync"})["sync"] == "fsync"
