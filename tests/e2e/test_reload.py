"""SIGHUP rereads the config file: reloadable options take effect, others are reported."""

import json
import os
import signal

import pytest

from nsqc.options.declared import FLAGS, KEYS, Options
from nsqc.options.flags import plain
from nsqc.options.option import Kind
from tests.support.daemon import wait_until
from tests.support.secure import identify

# Non-default values, for options whose kind is not enough to derive one.
OTHERS = {"log_level": 1, "max_deflate_level": 3, "auth_http_request_method": "post",
          "output_buffer_flush": "timeout", "topic_storage": "log", "log_sync": "fsync",
          "log_overflow": "drop-oldest", "lookupd_tcp_address": ("127.0.0.1:9",),
          "auth_http_address": ("127.0.0.1:9",), "statsd_address": "127.0.0.1:9",
          "e2e_processing_latency_percentile": (0.5,), "enable_experiment": ("topology-aware-consumption",),
          "http_extended_api": "all", "http_allowed_hosts": ("a.example",), "audit_level": "off",
          "log_format": "text"}     # another value, and the line format that is read here
# Refused at a start without certificates, or without a bucket.
NEEDS_MORE = ("tls_cert", "tls_key", "tls_client_auth_policy", "tls_required", "log_retain_local_bytes")


@pytest.fixture
def configured(daemon, tmp_path):
    """configured(values, *flags): a daemon with a config file, and a function that rewrites it and sends SIGHUP."""
    path = tmp_path / "nsqc.cfg"

    def write(values):
        path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
                        if isinstance(values, dict) else values)

    def start(values, *flags):
        write(values)
        node = daemon(f"--config={path}", *flags)

        def reload(values) -> list[str]:
            """The log lines of the reload. None: reloads the file unchanged."""
            known, count = len(node.log), ended(node)
            if values is not None:
                write(values)
            node.process.send_signal(signal.SIGHUP)
            wait_until(lambda: ended(node) > count, "the reload")
            return [line.split(": RELOAD: ")[1] for line in node.log[known:].splitlines() if ": RELOAD: " in line]

        return node, reload

    return start


def ended(node) -> int:
    return node.log.count("options changed\n") + node.log.count("RELOAD: no option is changed")


def config(node, key: str) -> str:
    """As GET /config returns it: strings bare, everything else as JSON."""
    return node.http("GET", f"/config/{key}")[1].decode()


def another(name: str):
    """A value that is not the default."""
    old, flag = getattr(Options(), name), FLAGS[name]
    if name in OTHERS:
        return OTHERS[name]
    if flag.kind is Kind.BOOL:
        return not old
    if flag.kind in (Kind.INT, Kind.DURATION):
        return old + 1 if flag.most is None or old < flag.most else old - 1
    return old + "x"


def test_every_option_changes_or_needs_a_restart(configured):
    node, reload = configured({}, "--tls-min-version=tls1.0")
    names = {key: name for key, name in KEYS.items()
             if name not in NEEDS_MORE and name not in ("data_path", "tcp_address", "http_address",
                                                               "tls_min_version")}
    values = {key: plain(FLAGS[name].kind, another(name)) for key, name in names.items()}
    before = {key: config(node, key) for key in values}
    lines = reload(values)
    for key, name in names.items():
        about = [line for line in lines if line.startswith(f"{key} ")]
        if FLAGS[name].live:
            assert config(node, key) != before[key], key
            assert len(about) == 1 and " is now " in about[0], key
        else:
            assert config(node, key) == before[key], key
            assert len(about) == 1 and " needs a restart: " in about[0], key
    assert lines[-1] == f"{sum(FLAGS[name].live for name in names.values())} options changed"

    # The same file again: nothing is new, but options that need a restart are still reported.
    again = reload(values)
    assert again == [line for line in lines if " needs a restart" in line] + ["0 options changed"]
    node.connect().pub("t", b"x")
    assert node.stop() == 0


def test_new_limits_apply_to_new_connections(configured):
    node, reload = configured({"max_rdy_count": 10, "max_body_size": 2000})
    old = node.connect().sub("t", "c")
    reload({"max_rdy_count": 20, "max_body_size": 100, "snappy": False, "max_connections": 2})
    old.command("RDY 11")
    assert b"out of range 0-10" in old.frame()[1]
    new = node.connect()
    answer = identify(new, snappy=True)
    assert (answer["snappy"], answer["max_rdy_count"]) == (False, 20)
    new.sub("t", "c", 20)
    assert node.http("POST", "/mpub?topic=t", b"x" * 101)[0] == 413
    node.post("/pub?topic=t", b"x")
    assert new.message().body == b"x"
    wait_until(lambda: node.stats()["topics"][0]["channels"][0]["client_count"] == 1)
    clients = [node.connect(), node.connect()]
    assert clients[1].frame() is None, "three are too many"


def test_a_flag_wins_over_the_file(configured):
    node, reload = configured({"max_rdy_count": 10}, "--max-rdy-count=77")
    assert reload({"max_rdy_count": 20, "log_level": "debug"}) == ["log_level is now debug", "1 options changed"]
    assert config(node, "max_rdy_count") == "77"


def test_what_was_set_over_http_stays_until_the_file_changes(configured):
    key = "nsqlookupd_tcp_addresses"
    node, reload = configured({key: []})
    assert node.http("PUT", f"/config/{key}", b'["127.0.0.1:9"]')[0] == 200
    assert reload({key: [], "max_rdy_count": 5}) == ["max_rdy_count is now 5", "1 options changed"]
    assert config(node, key) == '["127.0.0.1:9"]'
    reload({key: ["127.0.0.1:19"], "max_rdy_count": 5})
    assert config(node, key) == '["127.0.0.1:19"]'


@pytest.mark.parametrize(("text", "reason"), [
    ("max_rdy_count = \n", "failed to load config file"),
    ("max_rdy_count = 5\nmax_deflate_level = 10\n", "--max-deflate-level must be at most 9, not 10"),
    ("max_rdy_count = 5\nmax_msg_sice = 10\n", "did you mean max_msg_size?"),
    ("max_rdy_count = 5\ntls_required = true\n", "cannot require TLS client connections without TLS key and cert"),
])
def test_a_bad_file_changes_nothing(configured, text, reason):
    node, reload = configured({"max_rdy_count": 10})
    line, = reload(text)
    assert line.startswith("no option is changed, the old ones stay - ") and reason in line
    assert config(node, "max_rdy_count") == "10"
    assert reload({"max_rdy_count": 11}) == ["max_rdy_count is now 11", "1 options changed"]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_what_is_not_a_file_changes_nothing(configured, make):
    node, reload = configured({"max_rdy_count": 10})
    path = next(flag.split("=", 1)[1] for flag in node.flags if flag.startswith("--config="))
    os.unlink(path)
    make(path)
    assert reload(None)[0].startswith("no option is changed, the old ones stay - failed to load config file")
    assert config(node, "max_rdy_count") == "10"
    assert node.stop() == 0


def test_many_hangups_at_a_time(configured):
    node, reload = configured({})
    for _ in range(50):
        node.process.send_signal(signal.SIGHUP)
    reload({"max_rdy_count": 5})
    wait_until(lambda: config(node, "max_rdy_count") == "5")
    assert node.stop() == 0
