"""docs/logs.md verbatim: its config file, and every command in page order."""

import json
import os
import re
import subprocess
import sys

import pytest

from nsqc.commands.app import run
from tests.support.daemon import Daemon
from tests.support.pages import ROOT, blocks
from tests.support.patience import WAIT_SECONDS

PAGE = "docs/logs.md"


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    daemon = Daemon(tmp_path_factory.mktemp("logs") / "data")
    yield daemon
    assert daemon.stop() == 0


def test_the_offline_commands(tmp_path):
    daemon = Daemon(tmp_path / "data", "--topic-storage=log")
    consumer = daemon.connect().sub("orders", "billing", 1)
    daemon.connect().pub("orders", b"order 1", b"order 2", b"order 3")
    consumer.fin(consumer.message())
    consumer.message()
    daemon.kill()
    (block,) = [block for block in blocks(PAGE, "sh") if "nsqc log" in block]
    block = re.sub("^nsqc", f"{sys.executable} -m nsqc", block, flags=re.MULTILINE)
    for path, becomes in (("/var/lib/nsqd", daemon.data_path), ("/srv/nsqd", tmp_path / "out")):
        block = block.replace(path, str(becomes))
    done = subprocess.run(["sh", "-euc", block], capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{daemon.data_path}/orders.log: ok, 3 intact messages" in done.stdout
    assert "orders:billing: 2 messages, " in done.stdout
    other = Daemon(tmp_path / "out")
    try:
        messages = other.connect().sub("orders", "billing", 10).messages(2)
        assert {message.body for message in messages} == {b"order 2", b"order 3"}
    finally:
        other.close()


def test_the_rules_of_the_config_file(tmp_path, capfd):
    rules = tmp_path / "nsqc.cfg"
    rules.write_text("\n".join(blocks(PAGE, "toml")))
    assert run(["config", "check", str(rules)]) == 0, capfd.readouterr()
    daemon = Daemon(tmp_path / "data", f"--config={rules}")
    try:
        rule = json.loads(daemon.http("GET", "/topic/rules?topic=orders.eu")[1])
        assert (rule["storage"], rule["sync"], rule["overflow"]) == ("log", "fsync", "refuse")
        assert json.loads(daemon.http("GET", "/topic/rules?topic=metrics")[1])["storage"] == "memory"
    finally:
        daemon.close()


def test_the_commands(node, tmp_path):
    told = []
    (tmp_path / "nsqc.cfg").write_text(f'tcp_address = "127.0.0.1:{node.tcp_port}"\nhttp_address = "127.0.0.1:{node.http_port}"\n')
    environment = {**os.environ, "NSQC_CONFIG": str(tmp_path / "nsqc.cfg"), "PYTHONPATH": str(ROOT)}
    for block in blocks(PAGE, "sh"):
        if "nsqc log" in block:
            continue    # blocks about files that no daemon uses
        block = re.sub("^nsqc", f"{sys.executable} -m nsqc", block, flags=re.MULTILINE)
        done = subprocess.run(["sh", "-euc", block.replace("127.0.0.1:4151", f"127.0.0.1:{node.http_port}")],
                              cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=WAIT_SECONDS)
        assert done.returncode == 0, (block, done)
        assert '"message"' not in done.stdout, (block, done.stdout)     # no refusal
        told.append(done.stdout)
    rules, state, lines, headers, _, by_time, by_tools, seeks, audit = told
    assert rules.count('"source":"PUT /topic/rules"') == 2
    log = json.loads(state[state.index("{"):])
    assert (log["first_offset"], log["next_offset"]) == (0, 5)
    assert [channel["channel_name"] for channel in log["channels"]] == ["billing"]
    assert [json.loads(line)["body"] for line in lines.splitlines()] == ["order 2", "order 3"]
    assert "X-NSQ-Next-Offset: 5" in headers
    everything = [f"order {number}" for number in range(1, 6)]
    assert [json.loads(line)["body"] for line in (tmp_path / "all.json").read_text().splitlines()] == everything
    segment, = node.data_path.glob("orders.log/*.log")
    assert segment.read_bytes()[4096:] == (tmp_path / "frames.bin").read_bytes()
    assert len(by_time.splitlines()) == 5
    assert by_tools.splitlines()[2:] == everything
    assert [json.loads(line)["body"] for line in by_tools.splitlines()[:2]] == ["order 2", "order 3"]
    assert (seeks, audit) == ("", "")
    after = json.loads(node.http("GET", "/topic/log?topic=orders")[1])
    assert [(channel["channel_name"], channel["position"]) for channel in after["channels"]] == [("billing", 5)]
