"""The command line of real processes: exit codes, output, signals, standard files."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from nsqc import __version__
from tests.support.daemon import wait_until
from tests.support.pages import ROOT
from tests.support.patience import WAIT_SECONDS

NSQC = [sys.executable, "-m", "nsqc"]
ENV = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent.parent)}
LINE = re.compile(r"\[x\] \d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} (DEBUG|INFO|WARNING|ERROR|FATAL): .+")
ANY_PORTS = ["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"]


def run(*words, **more) -> subprocess.CompletedProcess:
    return subprocess.run([*NSQC, *words], capture_output=True, text=True, timeout=WAIT_SECONDS, env=ENV, **more)


@pytest.fixture
def nsqd(tmp_path):
    """A link named nsqd to the nsqc executable."""
    script = tmp_path / "nsqc"
    script.write_text(f"#!{sys.executable}\nfrom nsqc.cli import main\nmain()\n")
    script.chmod(0o755)
    link = tmp_path / "nsqd"
    link.symlink_to(script)
    return link


@pytest.fixture
def started(tmp_path):
    """started(*flags, **more): a daemon process with its own data path and a pipe for stderr."""
    processes = []

    def start(*flags, **more):
        more = {"stderr": subprocess.PIPE, "env": ENV, "cwd": tmp_path, **more}
        processes.append(subprocess.Popen([*NSQC, "serve", *ANY_PORTS, *flags], **more))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()
        if process.stderr:
            process.stderr.close()


def http_port(lines) -> int:
    """Reads log lines until the daemon is up."""
    for line in lines:
        found = re.search(rb" HTTP: listening on 127\.0\.0\.1:(\d+)$", line.rstrip())
        if found:
            return int(found[1])
    raise AssertionError("the daemon did not start")


# ---------------------------------------------------------------------- version and help


@pytest.mark.parametrize("words", [["--version"], ["-version"], ["version"], ["--", "version"]])
def test_its_own_version_is_beside_that_of_nsq(words):
    done = run(*words)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(rf"nsqc {re.escape(__version__)} \(compatible with NSQ 1\.3\.0, Python 3\.\S+, source checkout {re.escape(str(ROOT))}\)\n", done.stdout)


@pytest.mark.parametrize("words", [["serve", "--version"], ["serve", "-version=true"]])
def test_the_version_line_is_as_parsers_expect_it(words):
    done = run(*words)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(rf"nsqd v(1\.3\.0) \(built w/(nsqc-{re.escape(__version__)}-\S+)\)\n", done.stdout)


def test_version_and_help_load_neither_daemon_nor_typer():
    code = ("import sys; sys.argv = ['nsqc', 'serve', '--version']\n"
            "from nsqc.cli import main\n"
            "try: main()\n"
            "except SystemExit: pass\n"
            "print(sorted({'typer', 'uvloop', 'asyncio', 'nsqc.daemon'} & sys.modules.keys()))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT_SECONDS, env=ENV)
    assert done.stdout.splitlines()[1:] == ["[]"], done.stderr


def test_help():
    done = run("serve", "-h")
    assert (done.returncode, done.stderr) == (0, "")
    assert "--mem-queue-size" in done.stdout
    done = run("--help")
    assert done.returncode == 0
    assert "serve" in done.stdout


def test_a_reader_of_the_help_may_leave():
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([*NSQC, "serve", "--help"], stdout=write, stderr=subprocess.PIPE, timeout=WAIT_SECONDS, env=ENV)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


PRINTED = ["", "--help", "version", "config init", "config init FILE", "config show --json", "config check CONFIG", "man", "completion bash",
           "serve --help", "lookupd --version", "log inspect --help", "spark doctor", "diskqueue inspect ."]


@pytest.mark.parametrize(("words", "buffered"), [*((words, True) for words in PRINTED), ("--help", False), ("config check CONFIG", False)])
def test_an_output_that_takes_nothing_is_one_line(tmp_path, words, buffered):
    (tmp_path / "CONFIG").write_text("max_msg_size = 5\n")
    env = {name: value for name, value in ENV.items() if name != "PYTHONUNBUFFERED"} | ({} if buffered else {"PYTHONUNBUFFERED": "1"})
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*NSQC, *words.split()], stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
                              timeout=WAIT_SECONDS, env=env)
    assert done.returncode == 1
    assert re.fullmatch(r"nsqc[a-z ]*: stdout: No space left on device\n", done.stderr)


@pytest.mark.parametrize("words", ["config --help", "man", "serve --version"])
def test_every_reader_may_leave(words):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([*NSQC, *words.split()], stdout=write, stderr=subprocess.PIPE, timeout=WAIT_SECONDS, env=ENV)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("words", ["version", "serve --help", "config init"])
def test_without_any_output_it_says_so(words):
    done = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *NSQC, *words.split()], stderr=subprocess.PIPE, text=True,
                          timeout=WAIT_SECONDS, env=ENV)
    assert (done.returncode, done.stderr) == (1, "nsqc: stdout: Bad file descriptor\n")


def test_called_nsqadmin_it_is_the_admin_server(nsqd, tmp_path):
    link = tmp_path / "nsqadmin"
    link.symlink_to(nsqd.parent / "nsqc")
    done = subprocess.run([link, "--version"], capture_output=True, text=True, timeout=WAIT_SECONDS, env=ENV)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("nsqadmin v1.3.0 (built w/")
    done = subprocess.run([link], capture_output=True, text=True, timeout=WAIT_SECONDS, env=ENV)
    assert (done.returncode, done.stdout) == (1, "")
    assert "FATAL: failed to instantiate nsqadmin - --nsqd-http-address or --lookupd-http-address required" in done.stderr


def test_an_unknown_command_is_refused():
    done = run("nope")
    assert (done.returncode, done.stdout) == (2, "")
    assert "nope" in done.stderr


# ---------------------------------------------------------------------- failing starts


@pytest.mark.parametrize("words, complaint", [
    (["--no-such-flag"], "no-such-flag"), (["--max-msg-size=abc"], "max-msg-size"), (["--node-id"], "node-id"),
    (["--msg-timeout=10"], "msg-timeout"), (["more"], "more"),
])
def test_flags_that_cannot_be_read_leave_with_2(words, complaint):
    done = run("serve", *words)
    assert (done.returncode, done.stdout) == (2, "")
    told, = done.stderr.splitlines()
    assert complaint in told


@pytest.mark.parametrize("words, complaint", [
    (["--node-id=1024"], "--node-id"), (["--data-path=/nowhere/at/all"], "/nowhere/at/all"),
    (["--config=/nowhere.cfg"], "/nowhere.cfg"), (["--e2e-processing-latency-percentile=1.5"], "percentile"),
    (["--tcp-address=127.0.0.1:x"], "127.0.0.1:x"), (["--http-address=127.0.0.1:x"], "127.0.0.1:x"),
])
def test_values_that_cannot_be_used_leave_with_1(words, complaint, tmp_path):
    done = run("serve", *ANY_PORTS, f"--data-path={tmp_path}", "--log-prefix=[x] ", "--log-level=fatal", *words)
    assert (done.returncode, done.stdout) == (1, "")
    told, = done.stderr.splitlines()
    assert LINE.fullmatch(told)
    assert complaint in told


def test_a_bad_config_file_leaves_with_1_and_an_unknown_key_is_told(tmp_path, started):
    config = tmp_path / "nsqd.cfg"
    config.write_text('msg_timeout = "soon"\n')
    done = run("serve", *ANY_PORTS, f"--config={config}", cwd=tmp_path)
    assert done.returncode == 1
    assert f"config file {config}: msg_timeout = 'soon'" in done.stderr
    config.write_text('unknown_option = 1\nlog_prefix = "[x] "\n')
    process = started(f"--config={config}")
    first = process.stderr.readline().decode().rstrip()
    assert LINE.fullmatch(first)
    assert first.endswith(f"WARNING: config file {config}: unknown key 'unknown_option' is ignored")
    http_port(process.stderr)


OLD_EXAMPLE = """\
\ufeff## written for nsqd 1.2
log-level = "info"
log_prefix = "[x] "
"""


def test_the_example_file_of_older_releases_starts_with_one_warning(tmp_path, started):
    config = tmp_path / "nsqd.cfg"
    config.write_text(OLD_EXAMPLE, encoding="utf-8")
    process = started(f"--config={config}")
    lines = []
    for line in process.stderr:
        lines.append(line.decode())
        if b" HTTP: listening on " in line:
            break
    warned = [line for line in lines if " INFO: " not in line]
    assert len(warned) == 1
    assert warned[0].endswith(f"WARNING: config file {config}: unknown key 'log-level' is ignored, did you mean log_level?\n")


def test_a_working_folder_that_is_gone(tmp_path, started):
    """As after a script that removed its working folder. An absolute data path still works."""
    data = tmp_path / "data"
    data.mkdir()
    leave = f"mkdir {tmp_path}/gone && cd {tmp_path}/gone && rmdir {tmp_path}/gone && exec \"$@\""
    process = subprocess.Popen(["sh", "-c", leave, "sh", *NSQC, "serve", *ANY_PORTS, f"--data-path={data}"],
                               stderr=subprocess.PIPE, env=ENV)
    try:
        http_port(process.stderr)
        process.terminate()
        rest = process.stderr.read()
        assert process.wait(WAIT_SECONDS) == 0, rest
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    assert (data / "nsqd.dat").exists()
    for flags, shown in (([], ""), (["--data-path=data"], "data")):
        done = subprocess.run(["sh", "-c", leave, "sh", *NSQC, "serve", *ANY_PORTS, *flags], capture_output=True, text=True,
                              timeout=WAIT_SECONDS, env=ENV)
        assert done.returncode == 1
        told, = done.stderr.splitlines()
        assert told.endswith("FATAL: failed to instantiate nsqd - the working folder is gone (No such file or directory), so "
                             f"--data-path has to be absolute, not {shown!r}")


# ---------------------------------------------------------------------- names, places, signals


def test_called_nsqd_it_is_nsqd(nsqd, tmp_path):
    done = subprocess.run([nsqd, "-version"], capture_output=True, text=True, timeout=WAIT_SECONDS, env=ENV)
    assert done.stdout.startswith("nsqd v1.3.0 ")
    done = subprocess.run([nsqd, "--node-id=5000"], capture_output=True, text=True, timeout=WAIT_SECONDS, env=ENV)
    assert done.returncode == 1
    assert "--node-id" in done.stderr
    done = subprocess.run([nsqd, "serve"], capture_output=True, text=True, timeout=WAIT_SECONDS, env=ENV)
    assert done.returncode == 2


def test_without_a_data_path_it_is_the_current_folder(started, tmp_path):
    process = started()
    http_port(process.stderr)
    assert (tmp_path / "nsqd.dat").exists()
    process.send_signal(signal.SIGTERM)
    assert process.wait(WAIT_SECONDS) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_signal_at_any_time_after_the_flags_leaves_with_0(started, number, tmp_path):
    gate = tmp_path / "gate.cfg"
    os.mkfifo(gate)
    process = started(f"--config={gate}")

    def opened() -> int:
        try:
            return os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # no reader yet
            return 0

    # The daemon opens its end after parsing the flags, then waits for the content.
    end = wait_until(opened, "reading of the config file")
    # A signal right before a blocking read interrupts nothing, so another one follows.
    wait_until(lambda: process.send_signal(number) or process.poll() is not None, "the stop")
    os.close(end)
    assert process.returncode == 0
    assert b"Traceback" not in process.stderr.read()


SWALLOWED = """
import os, signal, weakref
from nsqc.commands.start import hold_signals

class Module:
    pass

module = Module()
seen = weakref.ref(module, lambda _: os.kill(os.getpid(), signal.SIGTERM))
hold_signals()
del module
os._exit(1)
"""


def test_a_stop_signal_counts_where_exceptions_are_swallowed():
    """Importing runs weak-reference callbacks: their exceptions go to stderr and have no other effect."""
    done = subprocess.run([sys.executable, "-c", SWALLOWED], capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_second_stop_signal_changes_nothing(started):
    process = started()
    http_port(process.stderr)
    process.send_signal(signal.SIGTERM)
    while process.poll() is None:
        process.send_signal(signal.SIGTERM)
    assert process.returncode == 0


def test_the_log_level_may_change_at_run_time(daemon):
    node = daemon()
    assert node.http("PUT", "/config/log_level", b"error") == (200, b"4")
    node.connect().pub("quiet", b"x")
    assert node.http("PUT", "/config/log_level", b"info") == (200, b"2")
    node.connect().pub("loud", b"x")
    wait_until(lambda: "TOPIC(loud): created" in node.log)
    assert "TOPIC(quiet): created" not in node.log


def test_info_tells_the_real_ports(daemon):
    node = daemon()
    info = json.loads(node.http("GET", "/info")[1])
    assert (info["tcp_port"], info["http_port"], info["version"]) == (node.tcp_port, node.http_port, "1.3.0")


# ---------------------------------------------------------------------- standard files


def test_log_lines_have_the_originals_form(daemon):
    node = daemon("--log-prefix=[x] ", "--log-level=debug")
    node.connect().pub("t", b"x")
    wait_until(lambda: "TOPIC(t)" in node.log)
    lines = node.log.split("\n")[:-1]
    assert [line for line in lines if not LINE.fullmatch(line)] == []
    assert sum("listening on" in line for line in lines) == 2


def test_an_unread_stderr_pipe_does_not_stop_the_daemon(started):
    process = started()
    port = http_port(process.stderr)
    with socket.create_connection(("127.0.0.1", port), WAIT_SECONDS) as client:
        asked = b"GET /ping?%s HTTP/1.1\r\nHost: x\r\n\r\n" % (b"x" * 900)
        for _ in range(40):
            client.sendall(asked * 10)
            data = b""
            while data.count(b"HTTP/1.1 200") < 10:
                data += client.recv(65536)
    # 400 log lines of 900 bytes exceed a pipe's buffer.
    process.send_signal(signal.SIGTERM)
    assert process.wait(WAIT_SECONDS) == 0


def test_a_closed_stderr_does_not_let_the_log_into_other_files(started, tmp_path):
    def close_all():
        for number in range(3):
            os.close(number)

    process = started("--tcp-address=tcp.sock", "--http-address=http.sock", "--mem-queue-size=0", "--log-level=debug",
                      stderr=None, preexec_fn=close_all)
    wait_until((tmp_path / "http.sock").exists, "the start")
    links = Path(f"/proc/{process.pid}/fd")
    assert [str((links / str(number)).readlink()) for number in range(3)] == [os.devnull] * 3
    process.send_signal(signal.SIGTERM)
    assert process.wait(WAIT_SECONDS) == 0
    for path in tmp_path.iterdir():
        if path.is_file():
            assert b"INFO" not in path.read_bytes()


@pytest.mark.parametrize("flag, complaint", [
    ("--tcp-address=localhost", "address localhost: missing port"),
    ("--http-address=::1", "address ::1: missing port"),
    ("--statsd-address=localhost", "--statsd-address: address localhost: missing port"),
    ("--lookupd-tcp-address=localhost:x", "--lookupd-tcp-address: address localhost:x: invalid port"),
])
def test_an_address_without_a_port_is_refused_by_name(tmp_path, flag, complaint):
    done = run("serve", *ANY_PORTS, f"--data-path={tmp_path}", flag, cwd=tmp_path)
    assert done.returncode == 1
    assert complaint in done.stderr
    assert list(tmp_path.glob("localhost*")) == []
