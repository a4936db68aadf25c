"""Commands that fail for unforeseen reasons: each is answered, and no answer is taken for another's."""

import asyncio
import errno
import resource
import shutil
import socket
import struct
from concurrent.futures import ThreadPoolExecutor

import pytest
import uvloop

from nsqc.broker.broker import Broker
from nsqc.broker.health import WriteHealth
from nsqc.broker.timers import Timers
from nsqc.net.limits import ConnectionLimits
from nsqc.options.declared import Options, Settings
from nsqc.store.disk.manager import DiskQueues
from nsqc.store.guid import GuidFactory
from nsqc.tcp import upgrade
from nsqc.tcp.connection import Connection
from nsqc.tcp.hub import Hub
from tests.support.daemon import Client, batch, wait_until

BODIES = {"PUB": b"x", "MPUB": batch(b"x", b"y"), "DPUB": b"x", "SUB": None}
LINES = {"PUB": "PUB {}", "MPUB": "MPUB {}", "DPUB": "DPUB {} 1000", "SUB": "SUB {} c"}


def few_files():
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))


def said(client) -> list[tuple[int, bytes]]:
    """All frames up to the end of the connection."""
    found = []
    while (frame := client.frame()) is not None:
        found.append(frame)
    return found


def command(name: str, topic: str) -> bytes:
    body = BODIES[name]
    return LINES[name].format(topic).encode() + b"\n" + (b"" if body is None else struct.pack(">i", len(body)) + body)


@pytest.mark.parametrize("name", ["PUB", "MPUB", "DPUB"])
def test_publishes_that_need_more_files_than_there_are(daemon, name):
    node = daemon("--mem-queue-size=0", preexec=few_files)
    client = node.connect()
    client.send(b"".join(command(name, f"{name}{number}") for number in range(100)) + b"BOGUS\n")
    frames = said(client)
    topics = {topic["topic_name"]: topic for topic in node.stats()["topics"]} if len(frames) > 100 else None
    oks = [frame for frame in frames if frame == (0, b"OK")]
    # Each answer belongs to its command: all before the first failure are OK, and nothing follows it.
    assert frames[:len(oks)] == oks
    assert len(frames) == len(oks) + 1
    if topics is None:
        assert frames[-1] == (1, b"E_%b_FAILED %b failed Too many open files" % (name.encode(), name.encode()))
        wait_until(lambda: f"E_{name}_FAILED {name} failed Too many open files" in node.log)
    else:
        assert frames[-1] == (1, b"E_INVALID invalid command BOGUS")
        assert all(topics[f"{name}{number}"]["message_count"] for number in range(100))


def test_subscribing_where_there_are_no_more_files(daemon):
    node = daemon("--mem-queue-size=0", preexec=few_files)
    clients = [node.connect() for _ in range(20)]
    for client in clients:
        client.ok("PUB t", b"x")
    publisher = clients.pop()
    publisher.send(b"".join(command("PUB", f"t{number}") for number in range(100)))
    for _ in range(100):
        if publisher.frame() != (0, b"OK"):
            break
    for number, client in enumerate(clients):
        client.command(f"SUB new{number} c")
        answer = client.frame()
        assert answer in [(0, b"OK"), (1, b"E_SUB_FAILED SUB failed Too many open files")]
        # A failure is the end of the connection, OK the beginning of a subscription.
        client.command("RDY 1")
        if answer[0] == 1:
            assert client.frame() is None
        else:
            assert client.quiet(0.1)


@pytest.mark.parametrize("name", LINES)
def test_the_data_path_is_gone(daemon, name):
    node = daemon("--mem-queue-size=0")
    client = node.connect()
    # Not while a file is being replaced: it would disappear, or appear, in the middle of this.
    wait_until(lambda: not list(node.data_path.glob("*.tmp")) and (node.data_path / "nsqc.ids.dat").exists(),
               "the files of a start")
    while node.data_path.exists():      # the daemon may be writing a file there
        shutil.rmtree(node.data_path, ignore_errors=True)
    client.command(LINES[name].format("new"), BODIES[name])
    kind, text = client.frame()
    assert kind == 0 or text.startswith(f"E_{name}_FAILED {name} failed ".encode()), text
    if kind == 1:
        assert client.frame() is None
    assert node.http("GET", "/stats")[0] == 200


@pytest.mark.parametrize("body", [
    b'{"client_id": "\xff"}', b'{"client_id": "\\ud800"}', b'{"client_id": "a", "user_agent": "\xed\xa0\x80"}',
    b'{"x": ' + b"[" * 9000 + b"]" * 9000 + b"}", b"[" * 9000, b"[" * 65_000, b'{"a":' * 13_000,
    b'{"heartbeat_interval": ' + b"9" * 60_000 + b"}", b'{"heartbeat_interval": 1e400}', b"\xff", b"\x00", b"nul",
])
def test_any_identify_is_answered(daemon, body):
    client = daemon().connect()
    client.command("IDENTIFY", body)
    answer = client.frame()
    assert answer in [(0, b"OK"), (1, b"E_BAD_BODY IDENTIFY failed to decode JSON body")]
    if answer == (0, b"OK"):
        client.ok("PUB t", b"x")


# ---------------------------------------------------------------------- any exception, in this process


class Lines:
    """A log that keeps its lines, and raises at a given one."""

    def __init__(self):
        self.lines = []
        self.trap = None

    def add(self, text, *arguments, kind=None):
        if self.trap is not None and self.trap in text:
            raise RuntimeError("trapped")
        self.lines.append(text % arguments if arguments else text)

    debug = info = warn = error = add

    def tally(self, kind):
        return None


def served(tmp_path, scenario):
    """Runs scenario(connect, hub) in a thread beside a listening hub; connect() makes a client."""

    async def main():
        loop = asyncio.get_running_loop()
        log = Lines()
        with ThreadPoolExecutor(4) as workers:
            settings = Settings(Options())
            disks = DiskQueues(tmp_path, loop, workers, log, *settings.now.disk_limits)
            write_health = WriteHealth(loop, workers, str(tmp_path), log, disks.failing_sync)
            broker = Broker(settings, log, Timers(loop), disks, write_health, GuidFactory.make(1))
            hub = Hub(broker, settings, log, loop, ConnectionLimits(log))
            server = await loop.create_server(lambda: Connection(hub), "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]

            def connect():
                client = Client(socket.create_connection(("127.0.0.1", port)))
                client.send(b"  V2")
                return client

            try:
                await loop.run_in_executor(workers, scenario, connect, hub)
            finally:
                hub.close()
                server.close()
                write_health.close()
                await disks.settle()
                broker.close()
                await disks.settle()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("error,reason", [
    (OSError(errno.EMFILE, "no"), b"Too many open files"), (MemoryError(), b"out of memory"),
    (RecursionError("deep"), b"internal error"), (OSError("nameless"), b"internal error"),
])
def test_an_exception_is_the_error_of_its_command(tmp_path, name, error, reason):
    def scenario(connect, hub):
        def starter(topic):
            if topic.name == b"bad":
                raise error
            topic.start()

        hub.broker.starter = starter
        client = connect()
        client.ok("PUB good", b"x")
        client.send(command("PUB", "good") + command(name, "bad") + command("PUB", "good"))
        code = name.encode()
        assert said(client) == [(0, b"OK"), (1, b"E_%b_FAILED %b failed %b" % (code, code, reason))]
        assert hub.broker.topics[b"good"].message_count == 2
        logged = [line for line in hub.log.lines if f"E_{name}_FAILED" in line]
        assert len(logged) == 1
        # Unforeseen exceptions are logged whole.
        assert any("Traceback" in line for line in hub.log.lines) == isinstance(error, RecursionError)

    served(tmp_path, scenario)


def test_an_exception_in_identify(tmp_path):
    def scenario(connect, hub):
        client = connect()
        hub.log.trap = "IDENTIFY"
        client.command("IDENTIFY", b"{}")
        client.command("PUB t", b"x")
        assert said(client) == [(1, b"E_IDENTIFY_FAILED IDENTIFY failed internal error")]

    served(tmp_path, scenario)


class Grant:
    """A user of an auth server, whose rules cannot be read."""

    identity = identity_url = ""
    rules = ("one",)
    ttl_s = 60
    account = None

    def allows(self, topic, channel):
        raise ValueError("a rule that is none")


class Authority:
    """Answers each question at once."""

    def __init__(self, loop, raises=None):
        self.loop, self.raises = loop, raises

    def ask(self, who, secret, answered):
        if self.raises:
            raise self.raises
        return self.loop.call_soon(answered, Grant(), False)


def test_an_exception_in_auth(tmp_path):
    def scenario(connect, hub):
        hub.authority = Authority(hub.loop, RuntimeError("no"))
        client = connect()
        client.command("AUTH", b"secret")
        assert said(client) == [(1, b"E_AUTH_FAILED AUTH failed internal error")]

    served(tmp_path, scenario)


@pytest.mark.parametrize("name", LINES)
def test_rules_that_cannot_be_read_allow_nothing(tmp_path, name):
    def scenario(connect, hub):
        hub.authority = Authority(hub.loop)
        client = connect()
        client.command("AUTH", b"secret")
        assert client.frame()[0] == 0
        client.command(LINES[name].format("t"), BODIES[name])
        assert said(client) == [(1, b"E_%b_FAILED %b failed internal error" % (name.encode(), name.encode()))]
        assert b"t" not in hub.broker.topics

    served(tmp_path, scenario)


def test_an_exception_outside_of_commands_ends_the_connection(tmp_path):
    def scenario(connect, hub):
        hub.log.trap = "desired protocol magic"
        client = connect()
        assert client.frame() is None
        hub.log.trap = None
        assert any("connection failed" in line and "trapped" in line for line in hub.log.lines)
        connect().ok("PUB t", b"x")

    served(tmp_path, scenario)


def test_an_upgrade_that_fails_ends_the_connection(tmp_path, monkeypatch):
    def fail(wanted):
        raise MemoryError

    monkeypatch.setattr(upgrade, "new_codec", fail)

    def scenario(connect, hub):
        client = connect()
        client.command("IDENTIFY", b'{"feature_negotiation": true, "deflate": true}')
        assert client.frame()[1].startswith(b"{")
        assert client.frame() is None
        assert any("connection failed" in line for line in hub.log.lines)

    served(tmp_path, scenario)
