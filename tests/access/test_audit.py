"""The audit log."""

import json
import os
import re
import signal
import socket
import stat
import threading

import pytest

from nsqc.access import audit as audits
from nsqc.access.audit import Audit
from nsqc.httpd import router
from nsqc.log import Log
from tests.httpd.wire import Wire
from tests.support.daemon import wait_until
from tests.support.lookupd import LookupServer

STAMP = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


def lines(path) -> list[dict]:
    """The complete lines."""
    return [json.loads(line) for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


def short(entries) -> list[tuple]:
    return [(line["user"], line["call"], line["target"], line["result"]) for line in entries]


def test_every_call_that_changes_something(start, access, tmp_path):
    file = tmp_path / "audit.jsonl"
    access.user("a", publish=["t"], stats=["*"])
    node = start(access.write().flag, f"--audit-file={file}")
    root, other = access.bearer("root"), access.bearer("a")
    calls = [("POST", "/topic/create?topic=t", b""), ("POST", "/channel/create?topic=t&channel=c", b""), ("POST", "/pub?topic=t", b"x"),
             ("PUT", "/config/log_level", b"fatal"), ("GET", "/stats", b""), ("POST", "/channel/pause?topic=t&channel=nothing", b""),
             ("DELETE", "/drain", b"")]
    for method, path, body in calls:
        node.call(method, path, body, root)
    for method, path, body in calls[:4]:
        node.call(method, path, body, other)
    node.call("POST", "/topic/delete?topic=t")
    client = node.connect()
    client.command("AUTH", access.tokens["root"].encode())
    client.frame()
    client.sub("new", "d")
    other_client = node.connect()
    other_client.command("AUTH", access.tokens["a"].encode())
    other_client.frame()
    other_client.command("PUB u", b"x")
    other_client.frame()
    assert node.stop() == 0
    forbidden = "403 FORBIDDEN - user a has no grant admin for "
    assert short(lines(file)) == [
        ("root", "POST /topic/create", "topic=t", "200 OK"), ("root", "POST /channel/create", "topic=t&channel=c", "200 OK"),
        ("root", "PUT /config/log_level", "log_level", "200 OK"),
        ("root", "POST /channel/pause", "topic=t&channel=nothing", "404 CHANNEL_NOT_FOUND"),
        ("root", "DELETE /drain", "", "200 OK"),
        ("a", "POST /topic/create", "topic=t", forbidden + "topic t"), ("a", "POST /channel/create", "topic=t&channel=c", forbidden + "t/c"),
        ("a", "PUT /config/log_level", "log_level", forbidden + "the whole node ('*')"),
        ("", "POST /topic/delete", "topic=t", "401 UNAUTHORIZED - this call needs a token with the grant admin: Authorization: Bearer TOKEN"),
        ("root", "CREATE", "new", "OK"), ("root", "CREATE", "new/d", "OK"), ("a", "PUB", "u", "E_UNAUTHORIZED"),
    ]
    for line in lines(file):
        assert list(line) == ["time", "user", "address", "call", "target", "result"]
        assert STAMP.fullmatch(line["time"])
        assert re.fullmatch(r"127\.0\.0\.1:\d+", line["address"])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_consumer_is_disconnected(start, access, tmp_path):
    """By users with the grant admin for its channel; others get 403. The connection ends, others stay."""
    file = tmp_path / "audit.jsonl"
    access.user("owner", admin=["t/c"])
    access.user("reader", read=["*"], stats=["*"])
    node = start(access.write().flag, f"--audit-file={file}")
    clients = []
    for _ in range(2):
        clients.append(node.connect())
        clients[-1].command("AUTH", access.tokens["root"].encode())
        clients[-1].frame()
        clients[-1].sub("t", "c")
    address = f"127.0.0.1:{clients[0].sock.getsockname()[1]}"
    path = f"/channel/disconnect?topic=t&channel=c&client={address}"
    assert node.call("POST", path, b"", access.bearer("reader")).status == 403
    assert node.call("POST", "/channel/disconnect?topic=t&channel=c", b"", access.bearer("owner")).status == 400
    assert node.call("POST", path, b"", access.bearer("owner")).status == 200
    assert clients[0].sock.recv(1) == b""
    assert node.call("POST", path, b"", access.bearer("owner")).status == 404
    [left] = json.loads(node.call("GET", "/stats?format=json", b"", access.bearer("reader")).body)["topics"][0]["channels"][0]["clients"]
    assert left["remote_address"] == f"127.0.0.1:{clients[1].sock.getsockname()[1]}"
    assert node.stop() == 0
    assert [(line["user"], line["result"].split(" - ")[0]) for line in lines(file) if line["call"] == "POST /channel/disconnect"] == [
        ("reader", "403 FORBIDDEN"), ("owner", "400 MISSING_ARG_CLIENT"), ("owner", "200 OK"), ("owner", "404 CLIENT_NOT_FOUND")]


def test_all_changing_routes_are_operators_calls():
    """Creates a topic, so the audit log gets a new line."""
    for method, paths in router.ROUTES.items():
        for path, route in paths.items():
            assert route.need.changes is ((method != b"GET" and path not in (b"/pub", b"/mpub", b"/message/cancel"))
                                          or route.need.grants == ("admin",)), path


def test_no_line_is_left_out(start, tmp_path):
    """The log counts repeated lines; the audit log has each of them. It needs no access file."""
    file = tmp_path / "audit.jsonl"
    node = start(f"--audit-file={file}")
    with node.wire() as wire:
        for number in range(3000):
            wire.request("POST", f"/topic/pause?topic=t{number}")
        for _ in range(3000):
            assert wire.reply().status == 404
    assert node.stop() == 0
    assert [line["target"] for line in lines(file)] == [f"topic=t{number}" for number in range(3000)]
    assert {line["user"] for line in lines(file)} == {""}


def test_web_pages_and_other_names_are_recorded(start, tmp_path):
    file = tmp_path / "audit.jsonl"
    node = start(f"--audit-file={file}")
    node.call("POST", "/topic/create?topic=t", headers="Origin: http://evil.example\r\n")
    assert node.stop() == 0
    assert [(line["call"], line["result"].split(" - ")[0]) for line in lines(file)] == [("POST /topic/create", "403 FOREIGN_ORIGIN")]


def test_rotation(start, access, tmp_path):
    file = tmp_path / "audit.jsonl"
    node = start(access.flag, f"--audit-file={file}")
    node.call("POST", "/topic/create?topic=a", headers=access.bearer("root"))
    wait_until(lambda: file.stat().st_size)
    file.rename(tmp_path / "audit.1")
    node.call("POST", "/topic/create?topic=b", headers=access.bearer("root"))
    os.kill(node.pid, signal.SIGHUP)
    wait_until(file.exists)
    node.call("POST", "/topic/create?topic=c", headers=access.bearer("root"))
    assert node.stop() == 0
    assert [line["target"] for line in lines(tmp_path / "audit.1")] == ["topic=a", "topic=b"]
    assert [line["target"] for line in lines(file)] == ["topic=c"]


@pytest.mark.parametrize(("level", "results"), [("changes", ["401", "200"]), ("refused", ["401"]), ("off", [])])
def test_levels(start, access, tmp_path, level, results):
    file = tmp_path / "audit.jsonl"
    node = start(access.flag, f"--audit-file={file}", f"--audit-level={level}")
    node.call("POST", "/topic/create?topic=t")
    node.call("POST", "/topic/create?topic=t", headers=access.bearer("root"))
    assert node.stop() == 0
    assert [line["result"][:3] for line in (lines(file) if file.exists() else [])] == results


def test_in_the_log(start, access):
    node = start(access.flag)
    node.call("PUT", "/config/log_level", b"fatal", access.bearer("root"))
    node.call("POST", "/topic/create?topic=t", headers=access.bearer("root"))
    found = node.wait_for(r"AUDIT: (\{.*topic/create.*\})$")
    assert json.loads(found[1])["user"] == "root"


@pytest.mark.parametrize(("form", "line"), [
    ("json", '"level":"audit","prefix":"[x]","message":"POST /x","user":"u","address":"a","call":"POST /x","target":"t","result":"200 OK"}'),
    ("logfmt", 'level=audit prefix=[x] message="POST /x" user=u address=a call="POST /x" target=t result="200 OK"'),
    ("text", '","user":"u","address":"a","call":"POST /x","target":"t","result":"200 OK"}'), ("journal", '"result":"200 OK"}')])
def test_forms_of_the_log(tmp_path, form, line):
    with (tmp_path / "log").open("w+b") as file:
        log = Log("[x] ", 5, file.fileno(), form)
        Audit("", "changes", log).record("u", "a", "POST /x", "t", "200 OK")
        log.close()
        file.seek(0)
        written = file.read().decode()
    assert written.endswith(line + "\n"), written
    assert written.startswith("<5>") is (form == "journal")


def test_nothing_is_written_without_options(start):
    node = start()
    node.post("/topic/create?topic=t")
    assert node.stop() == 0
    assert "AUDIT" not in node.log


def test_a_file_that_cannot_be_opened(start, tmp_path):
    with pytest.raises(AssertionError, match=r"failed to open --audit-file .*no/audit - No such file"):
        start(f"--audit-file={tmp_path}/no/audit")


def test_a_disk_that_takes_nothing(monkeypatch, tmp_path):
    """Calls that change state are refused before audit lines would be lost; the refused calls are counted."""
    monkeypatch.setattr(audits, "MOST_WAITING", 2000)
    path = tmp_path / "audit"
    log = Log()
    works = threading.Event()
    write = os.write

    def failing(descriptor, data):
        if works.is_set():
            return write(descriptor, data)
        raise OSError(28, "No space left on device")

    audit = Audit(str(path), "changes", log)
    monkeypatch.setattr(audits.os, "write", failing)
    for number in range(40):
        audit.record("u", "a", "POST /x", str(number), "200 OK")
    assert audit.is_full
    assert 0 < audit._missing < 40
    missing = audit._missing
    works.set()
    wait_until(lambda: not audit.is_full)
    audit.close()
    log.close()
    assert [line["target"] for line in lines(path)] == [str(number) for number in range(40 - missing)]


def test_the_lookup_server(tmp_path, access):
    file = tmp_path / "audit.jsonl"
    lookupd = LookupServer(tmp_path / "lookupd.log", access.flag, f"--audit-file={file}")
    try:
        with Wire(socket.create_connection(("127.0.0.1", lookupd.http_port), 60)) as wire:
            for headers in ("", access.bearer("root")):
                wire.request("POST", "/topic/create?topic=t", b"", headers)
                wire.reply()
        assert lookupd.stop() == 0
        assert [(line["user"], line["result"][:3]) for line in lines(file)] == [("", "401"), ("root", "200")]
    finally:
        lookupd.close()
