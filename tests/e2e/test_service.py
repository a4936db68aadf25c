"""Under a service manager: notifications, the watchdog, and sockets that outlive the daemon."""

import contextlib
import fcntl
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import termios
import threading
import time

import pytest

from tests.support.daemon import wait_until
from tests.support.manager import SERVE, Manager, handed, listening
from tests.support.patience import WAIT_SECONDS
from tests.support.ports import free_port


@pytest.fixture(params=["path"])
def manager(request, tmp_path):
    """With a socket in a folder, or in the abstract name space."""
    address = f"{tmp_path}/notify" if request.param == "path" else f"@nsqc-test-{os.getpid()}"
    with contextlib.closing(Manager(address)) as one:
        yield one


def env(manager, **more) -> dict:
    return {"env": {**os.environ, "NOTIFY_SOCKET": manager.address, **more}}


def port(sock) -> int:
    return sock.getsockname()[1]


def ping(sock_port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", sock_port), timeout=WAIT_SECONDS) as client:
        client.sendall(b"GET /ping HTTP/1.0\r\n\r\n")
        return b"".join(iter(lambda: client.recv(1000), b""))


# ---------------------------------------------------------------------- notifications


@pytest.mark.parametrize("manager", ["path", "abstract"], indirect=True)
def test_ready_reloading_ready_stopping(daemon, manager):
    node = daemon(**env(manager))
    ready = manager.hear()
    assert ready["READY"] == "1"
    places = re.fullmatch(r"Listening on TCP 127\.0\.0\.1:(\d+), HTTP 127\.0\.0\.1:(\d+)", ready["STATUS"])
    assert [int(place) for place in places.groups()] == [node.tcp_port, node.http_port]
    assert node.http("GET", "/ping") == (200, b"OK")
    node.connect().pub("t", b"x")

    before = time.monotonic_ns() // 1000
    node.process.send_signal(signal.SIGHUP)
    reloading = manager.hear()
    assert reloading["RELOADING"] == "1"
    assert before <= int(reloading["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
    assert manager.hear() == ready

    assert node.stop() == 0
    assert manager.hear()["STOPPING"] == "1"


def test_ready_comes_only_when_clients_are_served(daemon, manager):
    # At the daemon's first notification both listeners accept clients.
    node = daemon(**env(manager))
    manager.hear_until("READY")
    log = node.log
    assert "TCP: listening on" in log and "HTTP: listening on" in log


def test_a_failed_start_is_never_ready(daemon, manager, tmp_path):
    done = subprocess.run([*SERVE, "--http-address=", "--tcp-address=127.0.0.1:0", f"--data-path={tmp_path}/none"],
                          capture_output=True, timeout=WAIT_SECONDS, **env(manager))
    assert done.returncode == 1
    with pytest.raises(TimeoutError):
        manager.hear(0.2)


def test_a_manager_that_is_gone_does_not_matter(daemon, manager, tmp_path):
    node = daemon(env={**os.environ, "NOTIFY_SOCKET": f"{tmp_path}/nobody"})
    wait_until(lambda: "SYSTEMD: cannot send READY=1 - " in node.log)
    assert node.stop() == 0


# ---------------------------------------------------------------------- watchdog


def test_the_watchdog_is_fed_by_the_loop(daemon, manager):
    node = daemon(**env(manager, WATCHDOG_USEC="200000"))
    for _ in range(3):
        manager.hear_until("WATCHDOG")
    node.process.send_signal(signal.SIGSTOP)
    with contextlib.suppress(TimeoutError):
        # Sent before it was stopped.
        while True:
            manager.hear(0.1)
    with pytest.raises(TimeoutError):
        manager.hear(0.5)
    node.process.send_signal(signal.SIGCONT)
    manager.hear_until("WATCHDOG")
    assert node.stop() == 0


def test_a_watchdog_for_another_process(daemon, manager):
    node = daemon(**env(manager, WATCHDOG_USEC="20000", WATCHDOG_PID="1"))
    manager.hear_until("READY")
    with pytest.raises(TimeoutError):
        manager.hear(0.3)
    assert node.stop() == 0
    assert [name for heard in manager.hear_until("STOPPING") for name in heard] == ["STOPPING", "STATUS"]


# ---------------------------------------------------------------------- sockets


def test_inherited_sockets_stand_for_the_addresses(daemon, sockets):
    tcp, http = sockets
    # Not in the order of the code: the names decide.
    node = daemon(**handed([http, tcp], "http:tcp"))
    assert (node.tcp_port, node.http_port) == (port(tcp), port(http))
    node.connect().pub("t", b"x")
    assert node.stats("t")["depth"] == 1
    assert node.stop() == 0
    # The manager's sockets keep listening: a client waits for the next process.
    waiting = node.connect()
    node.start()
    assert waiting.sub("t", "c", 1).message().body == b"x"


def test_an_inherited_unix_socket_keeps_its_file(daemon, tmp_path, sockets):
    path = tmp_path / "tcp.sock"
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as sock:
        sock.bind(str(path))
        sock.listen()
        node = daemon("--tcp-address=127.0.0.1:0", **handed([sock], "tcp"), unix=True)
        wait_until(lambda: f"TCP: listening on {path}" in node.log)
        assert node.stop() == 0
        assert path.exists()
        assert not (node.data_path / "http.sock").exists(), "what it has bound itself is removed"


def test_no_http_address_but_an_inherited_socket(daemon, sockets):
    node = daemon("--http-address=", **handed(sockets, "tcp:http"))
    assert node.http("GET", "/ping") == (200, b"OK")


def test_sockets_for_another_process(daemon, sockets):
    node = daemon(**handed(sockets, "tcp:http", LISTEN_PID="1"))
    assert {node.tcp_port, node.http_port}.isdisjoint(map(port, sockets))


def test_a_restart_refuses_nobody(daemon, sockets):
    node = daemon(**handed(sockets, "tcp:http"))
    done = threading.Event()
    refused, answered = [], []

    def knock(to):
        while not done.is_set():
            try:
                with socket.create_connection(("127.0.0.1", port(to)), timeout=WAIT_SECONDS):
                    answered.append(to)
            except OSError as error:
                refused.append(error)
            time.sleep(0.001)

    threads = [threading.Thread(target=knock, args=[to]) for to in sockets]
    for thread in threads:
        thread.start()
    try:
        for _ in range(2):
            known = len(answered)
            assert node.stop() == 0
            # No process accepts now.
            waiting = socket.create_connection(("127.0.0.1", port(sockets[1])), timeout=WAIT_SECONDS)
            waiting.sendall(b"GET /ping HTTP/1.0\r\n\r\n")
            wait_until(lambda known=known: len(answered) > known + 10)
            node.start()
            assert b"200 OK" in waiting.recv(1000)
            waiting.close()
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert refused == []


def datagram(tmp_path):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    return sock


def not_listening(tmp_path):
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    return sock


def a_file(tmp_path):
    return (tmp_path / "file").open("w")


@pytest.mark.parametrize(("make", "names", "variables", "reason"), [
    ([listening], "nsqc.socket", {}, "inherited socket 3 is named 'nsqc.socket', not one of tcp, http, https"),
    ([listening], "", {}, "inherited socket 3 is named '', not one of tcp, http, https"),
    ([listening, listening], "tcp:tcp", {}, "two inherited sockets are named tcp"),
    ([listening], "https", {}, "an https socket is inherited, but there is no --tls-cert and --tls-key"),
    ([datagram], "tcp", {}, "inherited tcp socket 3 is not a listening stream socket"),
    ([not_listening], "http", {}, "inherited http socket 3 is not a listening stream socket"),
    ([a_file], "tcp", {}, "inherited tcp socket 3 - Socket operation on non-socket"),
    ([listening], "tcp", {"LISTEN_FDS": "x"}, "LISTEN_FDS=x is not a number"),
    ([], "", {"WATCHDOG_USEC": "-1"}, "WATCHDOG_USEC=-1 is not a number"),
])
def test_what_cannot_be_inherited_stops_the_start(tmp_path, make, names, variables, reason):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(contextlib.closing(opened(*[tmp_path][:opened is not listening]))) for opened in make]
        more = handed(sockets, names, **variables)
        done = subprocess.run([*more.pop("command"), "--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0",
                               f"--data-path={tmp_path}"], capture_output=True, text=True, timeout=WAIT_SECONDS, **more)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert reason in done.stderr.splitlines()[-1]


# ---------------------------------------------------------------------- without a manager


def hangup_as(action):
    """For preexec: the daemon must not inherit the tests' own disposition of SIGHUP."""
    return lambda: signal.signal(signal.SIGHUP, action)


def test_without_anything_to_read_again_a_hangup_stops_it(daemon):
    node = daemon(preexec=hangup_as(signal.SIG_DFL))
    node.connect().pub("t", *[b"m%d" % number for number in range(1000)])
    assert node.stop(signal.SIGHUP) == 0
    node.start()
    assert node.stats("t")["depth"] == 1000


def in_terminal(words: list[str], hangup=signal.SIG_DFL) -> tuple[subprocess.Popen, int]:
    """A process with its own controlling terminal, and the other end of that terminal."""
    master, slave = os.openpty()

    def take_terminal():
        signal.signal(signal.SIGHUP, hangup)
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(words, stdin=slave, stdout=slave, stderr=slave, preexec_fn=take_terminal)
    os.close(slave)
    return process, master


def answers(path, request: bytes) -> bytes:
    """The answer on a unix socket, once a process listens there."""
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as sock:
        wait_until(lambda: path.exists() and sock.connect_ex(str(path)) == 0)
        sock.sendall(request)
        return sock.recv(1000)


@pytest.mark.parametrize("started", ["by itself", "with a config file", "by a shell"])
def test_a_closed_terminal_stops_it(daemon, tmp_path, started):
    """Its log is the same terminal."""
    web, config = tmp_path / "http.sock", tmp_path / "nsqc.cfg"
    config.write_text("max_rdy_count = 5\n")
    words = [*SERVE, f"--http-address={web}", "--tcp-address=127.0.0.1:0", f"--data-path={tmp_path}"]
    if started != "by itself":
        words.append(f"--config={config}")
    if started == "by a shell":
        words = ["/bin/sh", "-c", f"{shlex.join(words)}; echo $? >{tmp_path}/code", "sh"]
    process, master = in_terminal(words)
    try:
        assert b"200 OK" in answers(web, b"POST /pub?topic=t HTTP/1.0\r\nContent-Length: 4\r\n\r\nkept")
        os.close(master)
        code = process.wait(WAIT_SECONDS)
        assert code == (-signal.SIGHUP if started == "by a shell" else 0)
    finally:
        process.kill()
        process.wait()
    # The shell ends at once, the daemon may take a moment longer.
    wait_until(lambda: not web.exists())
    node = wait_until(lambda: restarted(daemon, tmp_path))
    assert node.stats("t")["depth"] == 1


@pytest.mark.parametrize("command", ["lookupd", "admin"])
def test_a_closed_terminal_stops_the_other_servers(tmp_path, command):
    """Also one with a file that a hangup could mean to read again."""
    port, audit = free_port(), tmp_path / "audit"
    more = {"lookupd": ["--tcp-address=127.0.0.1:0"], "admin": ["--nsqd-http-address=127.0.0.1:1"]}[command]
    process, master = in_terminal([sys.executable, "-m", "nsqc", command, f"--http-address=127.0.0.1:{port}",
                                   f"--audit-file={audit}", *more])
    try:
        wait_until(lambda: listens(port))
        audit.rename(tmp_path / "old")
        process.send_signal(signal.SIGHUP)
        wait_until(audit.exists)    # reopened
        os.close(master)
        assert process.wait(WAIT_SECONDS) == 0
    finally:
        process.kill()
        process.wait()


def listens(port: int) -> bool:
    with contextlib.closing(socket.socket()) as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def restarted(daemon, data_path):
    """A daemon on a data path, once the previous one has released its lock."""
    with contextlib.suppress(AssertionError):
        return daemon(data_path=data_path)


def test_in_a_terminal_a_hangup_still_reloads(tmp_path):
    web, config = tmp_path / "http.sock", tmp_path / "nsqc.cfg"
    config.write_text("max_rdy_count = 5\n")
    process, master = in_terminal([*SERVE, f"--http-address={web}", "--tcp-address=127.0.0.1:0",
                                   f"--data-path={tmp_path}", f"--config={config}"])
    try:
        asked = b"GET /config/max_rdy_count HTTP/1.0\r\n\r\n"
        assert answers(web, asked).endswith(b"5")
        config.write_text("max_rdy_count = 6\n")
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: answers(web, asked).endswith(b"6"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_SECONDS) == 0
    finally:
        process.kill()
        process.wait()
        os.close(master)


def test_under_nohup_a_closed_terminal_is_ignored(tmp_path):
    web, config = tmp_path / "http.sock", tmp_path / "nsqc.cfg"
    config.touch()
    process, master = in_terminal([*SERVE, f"--http-address={web}", "--tcp-address=127.0.0.1:0",
                                   f"--data-path={tmp_path}", f"--config={config}"], hangup=signal.SIG_IGN)
    try:
        assert b"200 OK" in answers(web, b"GET /ping HTTP/1.0\r\n\r\n")
        os.close(master)
        time.sleep(0.3)
        assert b"200 OK" in answers(web, b"GET /ping HTTP/1.0\r\n\r\n")
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_SECONDS) == 0
    finally:
        process.kill()
        process.wait()


def test_a_hangup_during_the_start_stops_it_too(tmp_path):
    """At any moment: the exit code is always that of a clean stop. Slow: it starts twelve times."""
    for part in range(12):
        process = subprocess.Popen([*SERVE, "--http-address=127.0.0.1:0", "--tcp-address=127.0.0.1:0",
                                    f"--data-path={tmp_path}"], stderr=subprocess.DEVNULL,
                                   preexec_fn=hangup_as(signal.SIG_DFL))
        try:
            # A signal cannot be handled before Python runs nsqc.
            wait_until(lambda process=process: blocks_hangup(process.pid) or process.poll() is not None)
            time.sleep(part * 0.03)
            process.send_signal(signal.SIGHUP)
            assert process.wait(WAIT_SECONDS) == 0
        finally:
            process.kill()
            process.wait()


def blocks_hangup(pid: int) -> bool:
    """Whether a process already handles SIGHUP: it is blocked or caught."""
    with open(f"/proc/{pid}/status") as status:
        masks = dict(line.rstrip().split(":\t") for line in status if line.startswith("Sig"))
    return any(int(masks[name], 16) & 1 << signal.SIGHUP - 1 for name in ("SigBlk", "SigCgt"))


def test_under_nohup_it_keeps_running(daemon):
    node = daemon(preexec=hangup_as(signal.SIG_IGN))
    node.process.send_signal(signal.SIGHUP)
    node.connect().pub("t", b"x")
    assert node.http("GET", "/ping") == (200, b"OK")
    assert node.stop() == 0
