"""Options, flags, config file and command line, as processes see them."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqc.config import read_config
from nsqc.durations import format_duration, parse_duration
from nsqc.flags import FlagError, HelpWanted, help_text, parse_flags
from nsqc.options import FLAGS, HIDDEN, NOT_YET, OptionError, Options, check
from nsqc.serve import resolve
from tests.support.daemon import wait_until

NSQC = [sys.executable, "-m", "nsqc"]


def run(*words, **more) -> subprocess.CompletedProcess:
    return subprocess.run([*NSQC, *words], capture_output=True, text=True, timeout=30, **more)


# ---------------------------------------------------------------------- durations


@pytest.mark.parametrize("text, nanoseconds", [
    ("250ms", 250 * 10**6), ("1h30m", 5400 * 10**9), ("-1.5h", -5400 * 10**9), ("0", 0), ("2.5s", 25 * 10**8),
    ("1m30.5s", 905 * 10**8), ("10us", 10_000), ("10µs", 10_000), ("1ns", 1), (".5s", 5 * 10**8), ("+3m", 180 * 10**9),
])
def test_durations_are_read(text, nanoseconds):
    assert parse_duration(text) == nanoseconds


@pytest.mark.parametrize("text", ["", "10", "ms", "1.s.s", "1h-5m", "5 s", "1d", "-", "+", ".s", "9999999999h", "1s1"])
def test_bad_durations_are_refused(text):
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


@given(st.integers(-(2**62), 2**62))
def test_durations_survive_the_round_trip(nanoseconds):
    assert parse_duration(format_duration(nanoseconds)) == nanoseconds


@pytest.mark.parametrize("nanoseconds, text", [(0, "0s"), (1, "1ns"), (12_300, "12.3µs"), (250 * 10**6, "250ms"),
                                               (2_500_000_000, "2.5s"), (5400 * 10**9, "1h30m0s")])
def test_durations_look_like_gos(nanoseconds, text):
    assert format_duration(nanoseconds) == text


# ---------------------------------------------------------------------- flags


def test_forms_of_flags():
    found = parse_flags(["-max-rdy-count=7", "--max-msg-timeout", "1m30s", "--verbose", "-snappy=false", "--deflate",
                         "--max-rdy-count", "9", "--e2e-processing-latency-percentile=1.0,0.99",
                         "-e2e-processing-latency-percentile=0.5", "--tls-required", "--log-level", "WARN"])
    assert found == {"max_rdy_count": 9, "max_msg_timeout": 90 * 10**9, "verbose": True, "snappy": False,
                     "deflate": True, "e2e_processing_latency_percentile": (1.0, 0.99, 0.5), "tls_required": 2,
                     "log_level": 3}


@pytest.mark.parametrize("words, complaint", [
    (["--no-such-flag"], "no-such-flag"), (["--max-msg-size=abc"], "max-msg-size"), (["--msg-timeout=10"], "msg-timeout"),
    (["--log-level=loud"], "log-level"), (["--deflate=perhaps"], "deflate"), (["--node-id"], "needs an argument"),
    (["serve"], "unexpected"), (["--deflate", "false"], "unexpected"), (["---x"], "syntax"), (["--=x"], "syntax"),
    (["--client-timeout=1s"], "not defined"), (["--", "x"], "unexpected"), (["--output-buffer-flush=never"], "flush"),
])
def test_bad_flags(words, complaint):
    with pytest.raises(FlagError, match=complaint):
        parse_flags(words)


def test_every_flag_of_the_original_is_there():
    original = ["version", "config", "log-level", "log-prefix", "verbose", "node-id", "worker-id", "https-address", "http-address", "tcp-address", "auth-http-address", "broadcast-address", "broadcast-tcp-port", "broadcast-http-port", "lookupd-tcp-address", "http-client-connect-timeout", "http-client-request-timeout", "data-path", "mem-queue-size", "max-bytes-per-file", "sync-every", "sync-timeout", "queue-scan-worker-pool-max", "queue-scan-selection-count", "msg-timeout", "max-msg-timeout", "max-msg-size", "max-req-timeout", "max-body-size", "max-heartbeat-interval", "max-rdy-count", "max-output-buffer-size", "max-output-buffer-timeout", "min-output-buffer-timeout", "output-buffer-timeout", "max-channel-consumers", "statsd-address", "statsd-interval", "statsd-mem-stats", "statsd-prefix", "statsd-udp-packet-size", "statsd-exclude-ephemeral", "e2e-processing-latency-percentile", "e2e-processing-latency-window-time", "tls-cert", "tls-key", "tls-client-auth-policy", "tls-root-ca-file", "tls-required", "tls-min-version", "deflate", "max-deflate-level", "snappy"]
    known = {name.replace("_", "-") for name, flag in FLAGS.items() if not flag.own and name not in HIDDEN}
    assert known == set(original)
    for name in original:
        assert f"--{name} " in help_text()


@pytest.mark.parametrize("word", ["-h", "--help", "-help"])
def test_help(word):
    with pytest.raises(HelpWanted):
        parse_flags([word])
    done = run("serve", word)
    assert done.returncode == 0
    assert "--mem-queue-size" in done.stdout


def test_node_id_is_the_hash_of_the_host_name():
    assert 0 <= Options().node_id < 1024
    assert Options().node_id == Options().node_id


# ---------------------------------------------------------------------- ranges


@pytest.mark.parametrize("changes", [
    {"node_id": 1024}, {"node_id": -1}, {"max_deflate_level": 0}, {"max_deflate_level": 10}, {"max_msg_size": 0},
    {"mem_queue_size": -1}, {"sync_every": 0}, {"sync_timeout": 0}, {"max_req_timeout": 2**63 - 1},
    {"e2e_processing_latency_percentile": (0.0,)}, {"e2e_processing_latency_percentile": (1.5,)},
])
def test_values_out_of_range(changes):
    with pytest.raises(OptionError):
        check(Options(**changes))


@pytest.mark.parametrize("name", NOT_YET)
def test_what_is_not_there_yet_is_refused_by_name(name):
    value = {str: "x", tuple: ("x",), int: 1}[type(NOT_YET[name])]
    with pytest.raises(OptionError, match=f"--{name.replace('_', '-')} is not supported yet"):
        check(Options(**{name: value}))
    check(Options(**{name: NOT_YET[name]}))


# ---------------------------------------------------------------------- config file


def test_config_file_and_flags_over_it(tmp_path):
    path = tmp_path / "nsqd.cfg"
    path.write_text('max_rdy_count = 77\nmsg_timeout = "2500ms"\nsync_timeout = 1500\nid = 9\ndeflate = false\n'
                    'max_msg_size = 5000\nlog_level = "warn"\nsome_other_tool = 1\n'
                    'e2e_processing_latency_percentiles = [0.5, 0.9]\nverbose = true\ntls_required = false\n')
    options, unknown = resolve(parse_flags([f"--config={path}", "--max-msg-size=6000"]))
    assert (options.max_rdy_count, options.msg_timeout, options.sync_timeout) == (77, 2500 * 10**6, 1500 * 10**6)
    assert (options.node_id, options.deflate, options.max_msg_size, options.log_level) == (9, False, 6000, 3)
    assert options.e2e_processing_latency_percentile == (0.5, 0.9)
    assert unknown == ["some_other_tool"]


@pytest.mark.parametrize("text, complaint", [
    ("this is no = = toml\n", "failed to load"), ('log_level = "loud"\n', "log_level"), ('msg_timeout = "soon"\n', "msg_timeout"),
    ('tls_required = "perhaps"\n', "tls_required"), ("max_msg_size = [1]\n", "list"), ("data_path = 5\n", "number"),
    ("max_rdy_count = true\n", "true"), ("[mem_queue_size]\nx = 1\n", "dict"), ("mem_queue_sise = 5\n", "did you mean mem_queue_size"),
])
def test_bad_config_files(tmp_path, text, complaint):
    path = tmp_path / "nsqd.cfg"
    path.write_text(text)
    with pytest.raises(OptionError, match=complaint):
        read_config(str(path))


# ---------------------------------------------------------------------- processes


@pytest.mark.parametrize("words", [["--version"], ["-version"], ["serve", "--version"], ["serve", "-version"], ["version"]])
def test_version_line_as_parsers_expect_it(words):
    done = run(*words)
    assert done.returncode == 0
    assert done.stderr == ""
    assert re.fullmatch(r"nsqd v(1\.3\.0) \(built w/(\S+)\)\n", done.stdout)


@pytest.mark.parametrize("words, code, complaint", [
    (["--no-such-flag"], 2, "no-such-flag"), (["--max-msg-size=abc"], 2, "max-msg-size"), (["--node-id=1024"], 1, "--node-id"),
    (["--data-path=/nowhere/at/all"], 1, "/nowhere/at/all"), (["--config=/nowhere.cfg"], 1, "/nowhere.cfg"),
    (["--tls-cert=x.pem"], 1, "--tls-cert is not supported yet"), (["--tcp-address=127.0.0.1:x"], 1, "127.0.0.1:x"),
])
def test_what_stops_a_start_is_one_clear_line(words, code, complaint, tmp_path):
    done = run("serve", "--http-address=127.0.0.1:0", "--tcp-address=127.0.0.1:0", f"--data-path={tmp_path}", *words)
    assert done.returncode == code
    assert done.stdout == ""
    told = [line for line in done.stderr.splitlines() if "FATAL" in line or code == 2]
    assert len(told) == 1, done.stderr
    assert complaint in told[0]
    assert "Traceback" not in done.stderr


def test_called_nsqd_it_is_nsqd(tmp_path):
    link = tmp_path / "nsqd"
    link.write_text(f"#!{sys.executable}\nfrom nsqc.cli import main\nmain()\n")
    link.chmod(0o755)
    env = {**os.environ, "PYTHONPATH": os.getcwd()}
    done = subprocess.run([link, "-version"], capture_output=True, text=True, timeout=30, env=env)
    assert done.stdout.startswith("nsqd v1.3.0 ")
    done = subprocess.run([link, "--node-id=5000"], capture_output=True, text=True, timeout=30, env=env)
    assert done.returncode == 1
    assert "--node-id" in done.stderr


def test_without_a_data_path_it_is_the_current_folder(tmp_path):
    started = subprocess.Popen([*NSQC, "serve", "--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"], cwd=tmp_path,
                               stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.getcwd()}, text=True)
    try:
        assert any("HTTP: listening on 127.0.0.1:" in line for line in started.stderr)
        assert (tmp_path / "nsqd.dat").exists()
    finally:
        started.send_signal(signal.SIGTERM)
        started.communicate(timeout=20)
    assert started.returncode == 0


def test_log_lines_have_the_originals_form(daemon):
    node = daemon("--log-prefix=[x] ")
    node.connect().pub("t", b"x")
    lines = node.log.splitlines()
    for line in lines:
        assert re.fullmatch(r"\[x\] \d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} (DEBUG|INFO|WARNING|ERROR|FATAL): .+", line), line
    assert sum("listening on" in line for line in lines) == 2


def test_log_level_at_run_time(daemon):
    node = daemon()
    assert node.http("PUT", "/config/log_level", b"error") == (200, b"4")
    node.connect().pub("quiet", b"x")
    assert node.http("PUT", "/config/log_level", b"info") == (200, b"2")
    node.connect().pub("loud", b"x")
    wait_until(lambda: "TOPIC(loud): created" in node.log)
    assert "TOPIC(quiet): created" not in node.log


def test_an_unread_stderr_pipe_does_not_stop_the_daemon(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    started = subprocess.Popen([*NSQC, "serve", "--tcp-address=127.0.0.1:0", f"--http-address=127.0.0.1:{port}",
                                f"--data-path={tmp_path}"], stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert time.monotonic() < deadline
        with socket.create_connection(("127.0.0.1", port), 10) as client:
            asked = b"GET /ping?%s HTTP/1.1\r\nHost: x\r\n\r\n" % (b"x" * 900)
            answered = 0
            for _ in range(40):
                client.sendall(asked * 10)
                answered += 10
                data = b""
                while data.count(b"HTTP/1.1 200") < 10:
                    data += client.recv(65536)
        assert answered == 400, "400 log lines of 900 bytes do not fit into a pipe"
        started.send_signal(signal.SIGTERM)
        assert started.wait(20) == 0
    finally:
        started.kill()
        started.stderr.close()
        started.wait()


def test_info_tells_real_ports(daemon):
    node = daemon()
    info = json.loads(node.http("GET", "/info")[1])
    assert (info["tcp_port"], info["http_port"], info["version"]) == (node.tcp_port, node.http_port, "1.3.0")
