"""docs/monitoring.md names what there is: every field, key and line is looked for in a daemon, every command is run."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

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


def test_log_lines_are_the_daemons():
    sources = "".join(path.read_text() for path in (ROOT / "nsqc").rglob("*.py*") if path.suffix in (".py", ".pyx"))
    table = [row[0] for row in rows("part of the line")]
    for part in table:
        assert part in sources, part
    command, = [block for block in blocks(PAGE) if block.startswith("journalctl")]
    looked_for = re.search(r"--grep='(.+)'", command)[1]
    assert sum(bool(re.search(looked_for, part)) for part in table) >= 6


def commands() -> list[str]:
    return [block for block in blocks(PAGE) if block.startswith(("curl", "#"))]


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
