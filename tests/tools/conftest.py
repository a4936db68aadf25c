"""One daemon for the tests of a module, and tools as processes."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from nsqc.commands import ORIGINALS
from nsqc.commands.tools import run_original, run_tool
from tests.support.daemon import Daemon, wait_until
from tests.support.forks import run_tool as run_forked
from tests.support.forks import start_tool
from tests.support.patience import WAIT_SECONDS

ROOT = Path(__file__).resolve().parent.parent.parent
SECONDS = WAIT_SECONDS
NAMES = itertools.count()
NSQC = [sys.executable, "-m", "nsqc"]
ENV = {name: value for name, value in os.environ.items() if name != "NSQC_CONFIG"} | {
    "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "COLUMNS": "100"}


class Tool:
    """A running tool; its output goes to files, so that it never blocks."""

    def __init__(self, command: list[str], folder: Path, **more):
        number = next(NAMES)
        self.out_path, self.err_path = folder / f"out{number}", folder / f"err{number}"
        with self.out_path.open("wb") as out, self.err_path.open("wb") as err:
            if command[:3] == NSQC and more.keys() <= {"cwd", "env"}:
                self.process = start_tool(command[3:], out.fileno(), err.fileno(), more["cwd"], more.get("env", ENV))
            else:
                self.process = subprocess.Popen(command, **{"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err, "env": ENV, **more})

    @property
    def out(self) -> bytes:
        return self.out_path.read_bytes()

    @property
    def err(self) -> str:
        return self.err_path.read_text()

    def says(self, text: str | bytes) -> Tool:
        """Waits for a text on stdout (bytes) or stderr (str)."""
        wait_until(lambda: text in (self.out if isinstance(text, bytes) else self.err), f"{text!r}")
        return self

    def stop(self, number: int = signal.SIGINT) -> int:
        """Sends a signal; returns the exit code."""
        self.process.send_signal(number)
        return self.process.wait(WAIT_SECONDS)

    def wait(self) -> int:
        return self.process.wait(WAIT_SECONDS)


class Tools:
    """nsqc's tools, for one daemon."""

    def __init__(self, node: Daemon, folder: Path):
        self.node, self.folder = node, folder
        self.tcp, self.http = f"127.0.0.1:{node.tcp_port}", f"127.0.0.1:{node.http_port}"
        self.nodes = ("--nsqd", self.tcp, "--http", self.http)
        self.running: list[Tool] = []

    def run(self, *words: str, input: bytes | str | None = b"", nodes: bool = True, **more) -> subprocess.CompletedProcess:
        """`nsqc WORDS` to its end, with the daemon's address."""
        data = input.encode() if isinstance(input, str) else input
        words = (*words, *(self.nodes if nodes else ()))
        if data is not None and more.keys() <= {"env"}:
            return run_forked(list(words), data, self.folder, more.get("env", ENV), WAIT_SECONDS)
        if data is not None:
            more["input"] = data
        return subprocess.run([*NSQC, *words], capture_output=True, timeout=WAIT_SECONDS, **{"env": ENV, "cwd": self.folder, **more})

    def proposed(self, line: str) -> list[str]:
        """What the shell is told to propose for the last word of a line."""
        env = {**ENV, "NSQC_CONFIG": "/nowhere", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_NSQC_COMPLETE": "complete_bash"}
        done = self.run(nodes=False, env=env)
        assert (done.returncode, done.stderr) == (0, b"")
        return done.stdout.decode().split()

    def start(self, *words: str, nodes: bool = True, **more) -> Tool:
        """`nsqc WORDS` in the background; it is killed with the test."""
        command = [*NSQC, *words, *(self.nodes if nodes else ())]
        self.running.append(Tool(command, self.folder, cwd=self.folder, **more))
        return self.running[-1]

    def topic(self, *channels: str) -> str:
        """A new topic with these channels."""
        name = f"t{next(NAMES)}"
        self.node.post(f"/topic/create?topic={name}")
        for channel in channels:
            self.node.post(f"/channel/create?topic={name}&channel={channel}")
        return name

    def publish(self, topic: str, *bodies: bytes) -> None:
        client = self.node.connect()
        client.pub(topic, *bodies)
        client.close()

    def drained(self, topic: str, channel: str):
        """Waits until every message of a channel is finished."""
        def empty():
            found = self.node.channel(topic, channel)
            return not found["depth"] and not found["in_flight_count"] and not found["deferred_count"]

        return wait_until(empty, f"{topic}/{channel} to be empty")

    def taken(self, topic: str, channel: str) -> list[bytes]:
        """All waiting messages of a channel, taken out of it."""
        return taken(self.node, topic, channel)


def taken(node: Daemon, topic: str, channel: str) -> list[bytes]:
    """All messages of a channel of a daemon, finished."""
    client = node.connect().sub(topic, channel, rdy=100)
    bodies: list[bytes] = []

    def is_empty() -> bool:
        try:
            while True:
                message = client.message(0.1)
                client.fin(message)
                bodies.append(message.body)
        except TimeoutError:
            pass
        found = node.channel(topic, channel)
        return not (found["depth"] or found["in_flight_count"] or found["deferred_count"])

    wait_until(is_empty, f"{topic}/{channel} to be empty")
    client.close()
    return bodies


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """The daemon of a module."""
    daemon = Daemon(tmp_path_factory.mktemp("node") / "data")
    yield daemon
    daemon.close()


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """A second daemon."""
    daemon = Daemon(tmp_path_factory.mktemp("other") / "data")
    yield daemon
    daemon.close()


@pytest.fixture
def tools(node, tmp_path):
    found = Tools(node, tmp_path)
    yield found
    for tool in found.running:
        if tool.process.poll() is None:
            tool.process.kill()
            tool.process.wait()


@pytest.fixture(scope="module")
def links(tmp_path_factory):
    """NSQ's names for the tools, as links to an executable: links(name) is a path."""
    folder = tmp_path_factory.mktemp("links")
    script = folder / "nsqc"
    script.write_text(f"#!{sys.executable}\nfrom nsqc.cli import main\nmain()\n")
    script.chmod(0o755)

    def link(name: str) -> str:
        path = folder / name
        if not path.is_symlink():
            path.symlink_to(script)
        return str(path)

    return link


class Done(NamedTuple):
    """The result of a tool."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def inside(capfd, monkeypatch):
    """inside(name, *words): a tool, or one of NSQ's by its name, in this process: for calls that end at once."""
    def run(name: str, *words: str) -> Done:
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        monkeypatch.setenv("COLUMNS", "100")
        try:
            code = run_original(name, list(words)) if name in ORIGINALS else run_tool(name, list(words))
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        return Done(code, *capfd.readouterr())

    return run


def unused_address() -> str:
    """An address without a listener."""
    return "127.0.0.1:1"
