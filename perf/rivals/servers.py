"""The servers of the comparison: where each is found, and how each starts in each mode.

Each server has a folder of its own and listens on 127.0.0.1. All options not named here have their defaults.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from perf.load.server import Daemon, Server, Side
from perf.programs import ROOT
from tests.support.ports import free_port

MEMORY, WRITTEN, SYNCED = "memory", "written", "synced"
MODES = {MEMORY: "in memory: a kill loses the messages",
         WRITTEN: "written: an acknowledged message survives a kill of the process, not a power failure",
         SYNCED: "synced: an acknowledged message survives a power failure"}
MEM_QUEUE = 4_000_000       # messages: nothing goes to disk
SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
RABBIT_SCRIPT = "/usr/lib/rabbitmq/bin/rabbitmq-server"     # Debian's command would change the user


class Rival(Daemon):
    """A running server; port: that of its protocol."""

    def __init__(self, folder: Path, command: list[str], port: int, environment: dict[str, str] | None = None):
        self.port = port
        super().__init__(folder, command, environment)

    def answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
            return True
        except OSError:
            return False


class RabbitMQ(Rival):
    """RabbitMQ, with a port mapper of its own that ends with it."""

    def __init__(self, command: list[str]):
        folder = new_folder()
        port, names = free_port(), free_port()
        (folder / "plugins").write_text("[].")
        self._names = subprocess.Popen([found("epmd") or "epmd", "-port", str(names), "-address", "127.0.0.1"],
                                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        super().__init__(folder, command, port, {
            "HOME": str(folder), "RABBITMQ_NODENAME": f"rivals{port}@localhost", "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1", "RABBITMQ_DIST_PORT": str(free_port()),
            "ERL_EPMD_PORT": str(names),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"), "RABBITMQ_LOG_BASE": str(folder), "RABBITMQ_LOGS": "-",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"), "RABBITMQ_CONFIG_FILE": str(folder / "none"),
            "RABBITMQ_PID_FILE": str(folder / "pid"), "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
            "RUNNING_UNDER_SYSTEMD": "1"})      # without its own handlers of signals in a shell

    def close(self) -> None:
        """Stops it and its port mapper, and removes its files."""
        super().close()
        self._names.send_signal(signal.SIGTERM)
        self._names.wait()


class Nsq(Server):
    """nsqd or nsqc."""

    @property
    def port(self) -> int:
        """The port of the protocol."""
        return self.tcp


@dataclass(frozen=True)
class Kind:
    """A column of the comparison."""

    name: str
    protocol: str               # of the load client
    version: str
    start: Callable[[str], Rival | Nsq]     # takes the mode
    promises: dict[str, str]    # by mode: how it is configured and when it acknowledges; a mode may be missing
    window: int = 2500          # messages without an acknowledgement while consuming: near the fastest


def new_folder() -> Path:
    """A folder for a server's files."""
    return Path(tempfile.mkdtemp(prefix="nsqc-rivals-"))


def found(program: str) -> str | None:
    """The path of a program; directories of servers count, too."""
    return shutil.which(program, path=os.environ.get("PATH", "") + ":" + SBIN)


def version_of(*command: str) -> str:
    """The first number with dots that a command prints."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    match = re.search(r"\d+(\.\d+)+", done.stdout + done.stderr)
    return match[0] if match else "unknown"


def nsqc(command: list[str]) -> Kind:
    """The server of this tree."""
    flags = {MEMORY: (f"--mem-queue-size={MEM_QUEUE}",), WRITTEN: ("--topic-storage=log", "--log-sync=write"),
             SYNCED: ("--topic-storage=log", "--log-sync=fsync")}
    return Kind("nsqc", "nsq", version_of(*command[:-1], "version"),
                lambda mode: Nsq(Side("nsqc", tuple(command)), *flags[mode]),
                {mode: " ".join(flags[mode]) for mode in flags})


def nsqd(path: str) -> Kind:
    """NSQ's own daemon."""
    flags = {MEMORY: f"--mem-queue-size={MEM_QUEUE}", WRITTEN: "--mem-queue-size=0"}     # OK never waits for a sync
    return Kind("nsqd", "nsq", version_of(path, "--version"), lambda mode: Nsq(Side("nsqd", (path,)), flags[mode]), {
        MEMORY: flags[MEMORY], WRITTEN: f"{flags[WRITTEN]}; syncs every 2,500 messages or 2 s"})


def redis(path: str) -> Kind:
    """Redis Streams."""
    sync = {WRITTEN: "everysec", SYNCED: "always"}

    def start(mode: str) -> Rival:
        folder, port = new_folder(), free_port()
        return Rival(folder, [
            path, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", "",
            "--appendonly", "yes" if mode in sync else "no", "--appendfsync", sync.get(mode, "no"),
            "--auto-aof-rewrite-percentage", "0"], port)

    return Kind("Redis Streams", "redis", version_of(path, "--version"), start, {
        MEMORY: "--appendonly no --save ''",
        WRITTEN: "--appendonly yes --appendfsync everysec",
        SYNCED: "--appendonly yes --appendfsync always"})


def beanstalkd(path: str) -> Kind:
    """beanstalkd."""
    sync = {WRITTEN: ("-f", "1000"), SYNCED: ("-f", "0")}

    def start(mode: str) -> Rival:
        folder, port = new_folder(), free_port()
        log = ("-b", str(folder), *sync[mode]) if mode in sync else ()
        return Rival(folder, [path, "-l", "127.0.0.1", "-p", str(port), *log], port)

    return Kind("beanstalkd", "beanstalk", version_of(path, "-v"), start, {
        MEMORY: "no options", WRITTEN: "-b DIR -f 1000; syncs every second", SYNCED: "-b DIR -f 0"},
        window=64)      # each delete may search all reserved jobs of its connection


def jetstream(path: str) -> Kind:
    """NATS with JetStream, a stream and a pull consumer."""
    version = version_of(path, "--version")
    promises = {MEMORY: "stream in memory", WRITTEN: "stream in a file; syncs every 2 minutes"}
    if tuple(map(int, re.findall(r"\d+", version)[:2])) >= (2, 10):
        promises[SYNCED] = "stream in a file, sync_interval: always"

    def start(mode: str) -> Rival:
        folder, port = new_folder(), free_port()
        always = "sync_interval: always" if mode == SYNCED else ""
        (folder / "conf").write_text(f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{folder}"\n{always} }}\n')
        return Rival(folder, [path, "-c", str(folder / "conf")], port)

    return Kind("JetStream", "nats", version, start, promises)


def rabbitmq(path: str) -> Kind:
    """RabbitMQ's classic queues."""
    version = next((match[1] for part in Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*")
                    if (match := re.search(r"-([\d.]+)$", part.name))), "unknown")
    return Kind("RabbitMQ", "rabbit", version, lambda mode: RabbitMQ([path]), {
        MEMORY: "transient classic queue, delivery mode 1",
        SYNCED: "durable classic queue, delivery mode 2; the confirm follows the sync"})


def kinds(own: list[str], nsqd_path: str | None) -> tuple[list[Kind], list[str]]:
    """All servers that are installed, this tree's first; and a line for each that is not."""
    makers = [(nsqd, nsqd_path or found("nsqd"), "nsqd: not found; --nsqd PATH"),
              (redis, found("redis-server"), "Redis Streams: not found; apt-get install redis-server"),
              (beanstalkd, found("beanstalkd"), "beanstalkd: not found; apt-get install beanstalkd"),
              (jetstream, found("nats-server"), "JetStream: not found; apt-get install nats-server"),
              (rabbitmq, RABBIT_SCRIPT if Path(RABBIT_SCRIPT).exists() else found("rabbitmq-server"),
               "RabbitMQ: not found; apt-get install rabbitmq-server")]
    return ([nsqc(own), *(make(path) for make, path, _ in makers if path)],
            [f"skipped {missing}" for _, path, missing in makers if not path])
