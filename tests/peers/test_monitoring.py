"""Checks docs/monitoring.md: every field, key and line that it names exists in a daemon, and every command runs."""

import json
import re
import resource
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.leaks.test_leaks import limit_file_size
from tests.support.daemon import wait_until
from tests.support.pages import ROOT, blocks
from tests.support.patience import WAIT_SECONDS

PAGE = "docs/monitoring.md"
OF = {"the daemon": lambda found: found, "topic": lambda found: found["topics"][0],
      "channel": lambda found: found["topics"][0]["channels"][0]}


def rows(title: str) -> list[list[str]]:
    """The cells of the table whose head begins with title, code without its quotes."""
    lines = iter((ROOT / PAGE).read_text().splitlines())
    assert any(line.startswith(f"| {title} |") for line in lines)
    next(lines)
    found = []
    for line in lines:
        if not line.startswith("|"):
            break
        found.append([cell.strip().strip("`") for cell in line.strip("|").split("|")])
    return found


def busy(daemon, *flags):
    """A daemon with a topic, and a channel with and one without a consumer; latencies are measured."""
    node = daemon("--e2e-processing-latency-percentile=0.99", *flags)
    client = node.connect()
    client.pub("t", b"one", b"two")
    consumer = node.connect().sub("t", "c", 1)
    consumer.fin(consumer.message())
    return node


def test_fields(daemon):
    node = busy(daemon)
    told = json.loads(node.http("GET", "/stats?format=json&include_clients=false&include_mem=false")[1])
    for field, of, *_ in rows("field"):
        for one in of.split(", "):
            assert field in OF[one](told), (field, one)
    known = {field for field, *_ in rows("field")}
    assert told.keys() - known == {"version", "topics", "producers"}
    assert OF["topic"](told).keys() - known == {"topic_name", "channels"}
    assert OF["channel"](told).keys() - known == {"channel_name", "clients"}


def test_statsd_keys_and_types(daemon, statsd):
    server = statsd()
    busy(daemon, f"--statsd-address={server.address}", "--statsd-interval=200ms")
    wanted = {(key.replace("TOPIC", "t").replace("CHANNEL", "c"), kind[0]) for key, kind in rows("key after the prefix")}
    pattern = re.compile(r"nsq\.[^.]+_\d+\.(.+):-?\d+\|([cg])")

    def sent() -> set[tuple[str, str]]:
        return {pattern.fullmatch(line).groups() for line in server.lines()}

    wait_until(lambda: sent() >= wanted, f"{wanted - sent()}")
    assert sent() == wanted


# ---------------------------------------------------------------------- log lines

# Rooms whose lines the daemon logs.
ROOMS = ("broker", "httpd", "log", "loop", "net", "options", "peers", "process", "store", "tcp")
CALL = re.compile(r"""(?:\.(?:warn|error)\(\s*|text = f|return f|report\()f?"((?:[^"\\]|\\.)*"(?:\s*f?"(?:[^"\\]|\\.)*")*)""")


def formats() -> set[str]:
    """The texts that the daemon's sources log as warnings or errors."""
    sources = [ROOT / "nsqc/daemon.py", *(path for room in ROOMS for path in (ROOT / "nsqc" / room).rglob("*")
                                          if path.suffix in (".py", ".pyx"))]
    return {re.sub(r'"\s*f?"', "", text).rstrip('"') for path in sources for text in CALL.findall(path.read_text())}


def alert() -> re.Pattern[str]:
    """The patterns of the page's journalctl command."""
    command, = blocks(PAGE, heading="Log lines")
    return re.compile(re.search(r"--grep='(.+)'", command)[1])


def test_log_lines_are_the_daemons():
    known = formats()
    assert len(known) > 100
    for part, *_ in rows("part of the line"):
        assert any(part in text for text in known), part


# Lines that deserve an immediate alert.
URGENT = ("write failed - ", "failed to sync - ", "failed to persist metadata - ", "failed to write ",
          "publishes that need the disk are refused", "messages are lost", "are gone, ", "are gone: channels have had them",
          "is damaged", "damaged messages", "the journal is damaged", "it has a log with ", "uncaught exception")


def test_the_alert_finds_what_is_urgent_and_nothing_else():
    known, looked_for = formats(), alert()
    parts = [part for part, *_ in rows("part of the line")]
    assert set(URGENT) <= set(parts)
    for part in parts:
        texts = [text for text in known if part in text]
        if part in URGENT:
            assert any(looked_for.search(text) for text in texts), part
        else:
            assert not any(looked_for.search(text) for text in texts), part


def lines(node) -> list[str]:
    return [line for line in node.log.splitlines() if " INFO: " not in line]


# Limit of file sizes in bytes: the log, which it also limits, needs less.
LOG_ROOM = 300_000


def full_disk(daemon, tmp_path):
    node = daemon("--mem-queue-size=0")
    node.post("/topic/create?topic=t")
    limit_file_size(node.pid, LOG_ROOM)
    client = node.connect()
    client.command("PUB t", b"x" * 2 * LOG_ROOM)
    assert client.frame()[1].startswith(b"E_PUB_FAILED")
    wait_until(lambda: "write failed - " in node.log)
    limit_file_size(node.pid, resource.RLIM_INFINITY)
    return node


def no_room_for_metadata(daemon, tmp_path):
    node = daemon()
    for name in ("nsqd.dat", "nsqd.dat.last"):
        (node.data_path / f"{name}.{node.pid}.tmp").mkdir()     # blocks the file that would replace it
    node.post("/topic/create?topic=t")
    wait_until(lambda: "failed to persist metadata" in node.log)
    return node


def full_disk_at_a_stop(daemon, tmp_path):
    node = daemon()
    node.connect().pub("t", *[b"x" * LOG_ROOM] * 3)
    limit_file_size(node.pid, LOG_ROOM)
    assert node.stop() == 1
    return node


def little_room(daemon, tmp_path):
    node = daemon(f"--min-free-disk={1 << 60}")
    wait_until(lambda: node.http("GET", "/ping")[0] == 500)
    return node


def killed(daemon, tmp_path):
    """The positions date from an earlier stop, and a byte of a record differs."""
    node = daemon("--mem-queue-size=0", "--sync-timeout=1h", "--sync-every=1000000")
    node.connect().pub("t", *[b"%d" % n for n in range(10)])
    assert node.stop() == 0
    node.start()
    node.connect().pub("t", *[b"%d" % n for n in range(10, 100)])
    node.kill()
    path, = node.data_path.glob("t.diskqueue.*0.dat")
    data = bytearray(path.read_bytes())
    data[37 * 5 + 3] ^= 0x40
    path.write_bytes(data)
    (node.data_path / "nsqd.dat").write_text('{"topics": [{"name": "t"}, 5')
    node.start()
    node.connect().sub("t", "c", 100).messages(90)
    wait_until(lambda: "is damaged at" in node.log)
    return node


def queue_files_gone(daemon, tmp_path):
    node = daemon("--mem-queue-size=0")
    node.connect().pub("t", b"x", b"y")
    assert node.stop() == 0
    for path in node.data_path.glob("t.diskqueue.0*.dat"):
        path.unlink()
    node.start()
    return node


def log_files_gone_and_damaged(daemon, tmp_path):
    node = daemon("--topic-storage=log", "--max-bytes-per-file=400", "--log-retain-time=1h")
    node.connect().pub("t", b"first")
    node.post("/channel/create?topic=t&channel=c&from=beginning")
    for number in range(60):
        node.connect().pub("t", b"%d" % number)
    assert node.stop() == 0
    segments = sorted((node.data_path / "t.log").glob("*.log"))
    segments[0].write_bytes(segments[0].read_bytes().replace(b"first", b"FIRST"))
    segments[2].unlink()
    node.start()
    node.connect().sub("t", "c", 100).messages(30)
    wait_until(lambda: "damaged messages" in node.log)
    return node


def log_ends_before_its_channel(daemon, tmp_path):
    """The newest segment and the manifest are gone, and the journal is damaged."""
    node = daemon("--topic-storage=log", "--max-bytes-per-file=400", "--log-retain-time=1h")
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    for number in range(30):
        node.connect().pub("t", b"%d" % number)
    node.connect().sub("t", "c", 100).messages(30, finish=True)
    wait_until(lambda: node.channel("t", "c")["in_flight_count"] == 0)
    assert node.stop() == 0
    folder = node.data_path / "t.log"
    sorted(folder.glob("*.log"))[-1].unlink()
    (folder / "manifest").unlink()
    with sorted(folder.glob("cursors.*"))[-1].open("r+b") as journal:
        for copy in (0, 192):       # its first frame has a copy; others follow
            journal.seek(copy + 100)
            journal.write(b"x")
    node.start()
    return node


def newest_segment_gone(daemon, tmp_path):
    node = daemon("--topic-storage=log")
    node.connect().pub("t", b"x")
    assert node.stop() == 0
    for path in (node.data_path / "t.log").glob("*.log"):
        path.unlink()
    node.start()
    return node


def rule_of_a_log_lost(daemon, tmp_path):
    node = daemon("--topic-storage=log")
    node.connect().pub("t", b"x")
    assert node.stop() == 0
    return daemon(data_path=node.data_path)


def limits_reached(daemon, tmp_path):
    node = daemon("--max-connections=2")
    clients = [node.connect() for _ in range(2)]
    for client in clients:
        client.ok("SUB t c")
    assert node.connect().frame() is None
    return node


def reload_refused(daemon, tmp_path):
    config = tmp_path / "nsqd.cfg"
    config.write_text("")
    node = daemon(f"--config={config}")
    config.write_text("max_rdy_count = -1\n")
    node.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "RELOAD: no option" in node.log)
    return node


def slow_loop(daemon, tmp_path):
    node = daemon("--slow-loop=1ns")
    wait_until(lambda: "LOOP: " in node.log)
    return node


def drain_over(daemon, tmp_path):
    node = daemon()
    consumer = node.connect().sub("t", "c", 1)
    node.connect().pub("t", b"x")
    consumer.message()
    node.post("/drain?keep=true&timeout=100ms")
    wait_until(lambda: "DRAIN: the time" in node.log)
    return node


def repeated(daemon, tmp_path):
    node = daemon()
    for _ in range(50):
        node.connect().command("NOPE")
    wait_until(lambda: node.log.count("E_INVALID invalid command NOPE") >= 10)
    assert node.stop() == 0
    return node


def no_lookup_server(daemon, tmp_path):
    node = daemon("--lookupd-tcp-address=127.0.0.1:1")
    wait_until(lambda: "LOOKUPD(127.0.0.1:1): " in "\n".join(lines(node)))
    return node


CAUSED = {
    full_disk: ("write failed - ",), no_room_for_metadata: ("failed to persist metadata - ",),
    full_disk_at_a_stop: ("failed to write ", "messages are lost"),
    little_room: ("publishes that need the disk are refused",), killed: ("was not closed cleanly", "is damaged"),
    queue_files_gone: ("messages are lost",), log_files_gone_and_damaged: ("are gone, ", "damaged messages"),
    log_ends_before_its_channel: ("are gone: channels have had them", "the journal is damaged"),
    newest_segment_gone: ("are gone, ",), rule_of_a_log_lost: ("it has a log with ",),
    limits_reached: ("refused: ",), reload_refused: ("no option is changed, the old ones stay",), slow_loop: ("LOOP: ",),
    drain_over: ("DRAIN: the time is over",), repeated: ("more like this in the last",), no_lookup_server: ("LOOKUPD(",),
}


@pytest.mark.parametrize("cause", CAUSED, ids=lambda cause: cause.__name__)
def test_lines_that_a_daemon_writes(daemon, tmp_path, cause):
    node = cause(daemon, tmp_path)
    wait_until(lambda: all(any(part in line for line in lines(node)) for part in CAUSED[cause]), "the lines")
    told = lines(node)
    looked_for = alert()
    for part in CAUSED[cause]:
        matching = [line for line in told if part in line]
        assert matching, (part, told[-10:])
        assert all(looked_for.search(line) for line in matching) == (part in URGENT), part


def commands() -> list[str]:
    return [*blocks(PAGE, heading="Health"), *blocks(PAGE, heading="Statistics")]


@pytest.mark.skipif(shutil.which("jq") is None, reason="the page's alerts need jq")
def test_commands(daemon, tmp_path: Path):
    node = daemon("--mem-queue-size=1")
    node.connect().pub("lonely", b"x")
    node.post("/channel/create?topic=lonely&channel=left", b"")
    node.connect().pub("lonely", b"y", b"z")
    wait_until(lambda: node.stats("lonely")["channels"][0]["backend_depth"] > 0)
    node.post("/channel/pause?topic=lonely&channel=left", b"")

    def run(block: str) -> str:
        block = block.replace("127.0.0.1:4151", f"127.0.0.1:{node.http_port}")
        done = subprocess.run(["bash", "-eo", "pipefail", "-c", block], capture_output=True, text=True, timeout=WAIT_SECONDS)
        assert (done.returncode, done.stderr) == (0, ""), block
        return done.stdout

    ping, stats, alerts = commands()
    assert run(ping) == "OK"
    assert run(stats).startswith('{"version":"1.3.0"')
    told = run(alerts).splitlines()
    assert told[0] == "lonely/left: 3 messages, no consumer"
    assert re.fullmatch(r"lonely/left: [12] messages on disk", told[1])
    assert told[2:] == ["lonely/left is paused"]
    node.post("/topic/delete?topic=lonely", b"")
    assert run(alerts) == ""
