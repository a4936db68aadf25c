"""A data engineer's first hour: the Spark section of the README, docs/spark.md and docs/jobs.md, to the letter.

Only addresses and places are put in for those of the pages (127.0.0.1:4150, /shared, /checkpoints, /copy, /var/lib), and
the access log has fewer lines; figures in the outputs are compared by their form. One Spark session serves all.
"""

import re
import shlex
from contextlib import suppress

import pytest

from nsqc.commands.app import run
from tests.spark import accesslog
from tests.spark.conftest import depth, spark  # noqa: F401
from tests.spark.test_queue_files import record
from tests.support.daemon import Daemon, batch, wait_until
from tests.support.pages import ROOT, blocks
from tests.support.ports import free_port

LINES = 2000


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """nsqd as it is started without options, HTTP right behind TCP, but at another port."""
    while True:
        port = free_port()
        with suppress(AssertionError):
            one = Daemon(tmp_path_factory.mktemp("node") / "data", f"--tcp-address=127.0.0.1:{port}",
                         f"--http-address=127.0.0.1:{port + 1}")
            break
    yield one
    one.close()


@pytest.fixture
def here(node, tmp_path, monkeypatch):
    """here(block): the block with the addresses and places of this machine."""
    monkeypatch.chdir(tmp_path)

    def put(text: str) -> str:
        text = text.replace("127.0.0.1:4150", f"127.0.0.1:{node.tcp_port}")
        for place in ("/shared/", "/checkpoints/", "/copy/", "/var/lib/"):
            text = text.replace(f'"{place}', f'"{tmp_path}{place}')
        return text

    return put


def form(line: str) -> str:
    """A line of output without its figures."""
    return re.sub(r"[\d.,:-]*\d", "#", re.sub(r"(\d) (ms|s|min|h|µs|B|KiB|MiB)\b", r"\1 u", line))


def follow(block: str, here, capfd, **actions) -> list[str]:
    """Runs what follows each `$ ` and compares what it tells with what stands below it: all that was told. Commands that
    are not nsqc's are actions, by their first word."""
    told_all = []
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        line, _, expected = here(part).partition("\n")
        words = shlex.split(line)
        if words[0] != "nsqc":
            actions[words[0]]()
            continue
        code = run(words[1:])
        told, errors = capfd.readouterr()
        complaints = [one for one in expected.splitlines() if one.startswith("nsqc spark: ")]
        assert (code != 0) == bool(complaints), errors
        shown = told.splitlines() + (errors.splitlines()[-1:] if complaints else [])
        assert {form(one) for one in shown} == {form(one) for one in expected.splitlines()}, (line, told, errors)
        told_all += shown
    return told_all


def test_the_pages_about_sources_and_sinks(spark, node, here, tmp_path, capfd):  # noqa: F811
    folder = tmp_path / "copy" / "of" / "data"
    folder.mkdir(parents=True)
    (folder / "orders.diskqueue.000000.dat").write_bytes(record(b"left behind"))
    (tmp_path / "shared").mkdir()
    (tmp_path / "var" / "lib").mkdir(parents=True)
    block = blocks("docs/spark.md", "python")[0]
    names: dict = {}
    # A stream's channel has what was published before it only if it is the topic's first: as it is here.
    exec(compile(here(block), "docs/spark.md", "exec"), names)
    assert depth(node, "orders") == depth(node, "copies") == 1000
    assert "|orders|" in capfd.readouterr().out
    import nsqc.spark

    assert nsqc.spark.metrics(names["query"])[0]["nsqdUp"] == 1
    section = blocks("README.md", "python", "Spark")[0]
    exec(compile(here(section), "README.md", "exec"), names)
    assert names["orders"].isStreaming
    assert run(["spark", "doctor", f"127.0.0.1:{node.tcp_port}"]) == 0


def test_the_page_about_jobs(spark, node, daemon, here, tmp_path, capfd):  # noqa: F811
    accesslog.write(tmp_path / "access.csv", LINES)
    for heading in ("produce", "archive", "replay", "report"):
        (block,) = [one for one in blocks("docs/jobs.md", "", heading) if one.startswith("$")]
        told = follow(block, here, capfd)
        assert any(f"{LINES:,} messages" in line for line in told), told
    assert depth(node, "access") == depth(node, "access-again") == LINES
    assert (tmp_path / "report.html").read_text().count("<svg") == 8

    dead = daemon("--mem-queue-size=0", data_path=tmp_path / "node1", cwd=ROOT)
    dead.post("/topic/create?topic=access-again")
    dead.post("/channel/create?topic=access-again&channel=mail")
    client = dead.connect()
    client.ok("MPUB access-again", batch(*(b"%d" % number for number in range(LINES))))
    client.close()
    wait_until(lambda: dead.channel("access-again", "mail")["depth"] == LINES, "all in the channel")
    told = follow(blocks("docs/jobs.md", "", "backfill")[0], here, capfd, kill=dead.stop)
    assert f"read {LINES:,} messages of access-again, channel mail" in told
    assert depth(node, "access-again") == 2 * LINES


def test_words_that_are_wrong_are_told_before_spark_starts(node, here, tmp_path, capfd):
    accesslog.write(tmp_path / "access.csv", 3)
    tcp, http = f"127.0.0.1:{node.tcp_port}", f"127.0.0.1:{node.http_port}"
    node.post("/topic/create?topic=present")
    cases = {
        f"--topic present --nsqd {http}": f"{http} is the HTTP port of an nsqd: give its TCP port, --nsqd {tcp}",
        f"--topic presnet --nsqd {tcp}": "there is no topic presnet; there ",
        f"--topic present --nsqlookupd {tcp}": f"{tcp} is the TCP port of an nsqd: give it as --nsqd {tcp}",
        f"--topic present --nsqd {tcp} --tls": "does not offer tls: leave out --tls",
    }
    for words, complaint in cases.items():
        assert run(["spark", "produce", "access.csv", *words.split()]) == 1
        told, errors = capfd.readouterr()
        assert told == "" and errors.startswith("nsqc spark: ") and complaint in errors, errors
        assert errors.count("\n") == 1 and "starting Spark" not in errors
