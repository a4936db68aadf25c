"""A data engineer's first hour: the Spark section of the README, docs/spark.md and docs/spark.md, verbatim.

Only the pages' addresses and paths are replaced (127.0.0.1:4150, /shared, /checkpoints, /copy, /var/lib), and the
access log has fewer lines; figures in outputs are compared by form. One Spark session serves all.

Slow: every block of the pages is a Spark program.
"""

import json
import re
import shlex
from contextlib import suppress

import pytest

from nsqc.commands.app import run
from tests.spark import accesslog
from tests.spark.conftest import depth, quick_workers, spark  # noqa: F401
from tests.spark.test_queue_files import record
from tests.support.daemon import Daemon, batch, wait_until
from tests.support.pages import ROOT, blocks
from tests.support.ports import free_port

LINES = 2000


def started(data_path, *flags: str) -> Daemon:
    """nsqd with HTTP on the port after TCP's, as by default, but at another port."""
    while True:
        port = free_port()
        with suppress(AssertionError):
            return Daemon(data_path, f"--tcp-address=127.0.0.1:{port}", f"--http-address=127.0.0.1:{port + 1}", *flags)


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """nsqd with default options."""
    one = started(tmp_path_factory.mktemp("node") / "data")
    yield one
    one.close()


@pytest.fixture
def log_node(tmp_path):
    """A node that keeps topics in logs, in small segments."""
    one = started(tmp_path / "log_node", "--topic-storage=log", "--max-bytes-per-file=4096")
    yield one
    one.close()


@pytest.fixture
def here(node, tmp_path, monkeypatch):
    """here(block): the block with this machine's addresses and paths; at: another node."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))     # where nsqc is installed, for a worker in that folder

    def put(text: str, at: Daemon = node) -> str:
        text = text.replace("127.0.0.1:4150", f"127.0.0.1:{at.tcp_port}")
        text = text.replace("127.0.0.1:4151", f"127.0.0.1:{at.http_port}")
        for place in ("/shared/", "/lake/", "/checkpoints/", "/copy/", "/var/lib/"):
            text = text.replace(f'"{place}', f'"{tmp_path}{place}')
        return text

    return put


def form(line: str) -> str:
    """A line of output without its figures."""
    return re.sub(r"[\d.,:-]*\d", "#", re.sub(r"(\d) (ms|s|min|h|µs|B|KiB|MiB)\b", r"\1 u", line))


def follow(block: str, here, capfd, **actions) -> list[str]:
    """Runs the command after each `$ ` and compares its output with the lines below it, which must be complete.
    Commands other than nsqc's are actions, by their first word."""
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
    block = blocks("docs/spark.md", "python", "Setup")[0]
    names: dict = {}
    # A stream's channel has earlier messages only if it is the topic's first channel, as it is here.
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
        (block,) = [one for one in blocks("docs/spark.md", "", heading) if one.startswith("$")]
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
    told = follow(blocks("docs/spark.md", "", "backfill")[0], here, capfd, kill=dead.stop)
    assert f"read {LINES:,} messages of access-again, channel mail" in told
    assert depth(node, "access-again") == 2 * LINES


def test_the_pages_about_topics_in_a_log(spark, log_node, here, tmp_path, capfd):  # noqa: F811
    def log_here(text: str) -> str:
        return here(text, log_node)

    client = log_node.connect()
    bodies = [b'{"id": %d, "price": %d}' % (number, -1 if number == 1234 else 1) for number in range(LINES)]
    for at in range(0, LINES, 100):
        client.pub("orders", *bodies[at:at + 100])
    log_node.post("/channel/create?topic=orders&channel=billing&from=beginning")
    told = follow(blocks("docs/spark.md", "", "Jobs on log-backed topics")[0], log_here, capfd)
    assert any("published 1,000 messages to orders-again" in line for line in told)
    assert (tmp_path / "orders.html").read_text().count("<svg") == 2
    # On the page the query lags; here it has read everything.
    block = log_here(blocks("docs/spark.md", "", "lag")[0]).replace("archive/_state", "orders-archive/_state")
    line, *expected = block.removeprefix("$ nsqc ").splitlines()
    assert run([*shlex.split(line), "--topic=orders"]) == 0
    told = [line.split() for line in capfd.readouterr()[0].splitlines()]
    assert [line[:4] for line in told] == [line.split()[:4] for line in expected]
    assert [line[4:7] for line in told[1:]] == [["0", f"{LINES:,}", f"{LINES:,}"], [f"{LINES:,}", f"{LINES:,}", "0"]]

    # SQL.
    create, sums, price = (part for part in log_here(blocks("docs/spark.md", "sql", "SQL")[0]).split(";") if part.strip())
    spark.sql(create)
    assert tuple(spark.sql(sums).first())[:4] == (f"127.0.0.1:{log_node.tcp_port}", LINES, 0, LINES - 1)
    assert [row[0] for row in spark.sql(price).collect()] == [1.0] * 10
    spark.catalog.dropTempView("orders_log")

    # Bodies as columns.
    names = {"orders": spark.read.format("nsq").option("topic", "orders").option(
        "nsqd", f"127.0.0.1:{log_node.tcp_port}").load()}
    exec(compile(blocks("docs/spark.md", "python", "Bodies as columns")[0], "docs/spark.md", "exec"), names)
    assert names["parsed"].where("not bad").count() == LINES

    # A channel that has read everything is moved back; the others are not.
    log_node.post("/channel/create?topic=orders&channel=kept&from=beginning")
    consumer = log_node.connect().sub("orders", "billing", 2500)
    consumer.messages(LINES, finish=True)
    (block,) = blocks("docs/spark.md", "python", "Recipe: move a channel back to a time found by Spark")
    exec(compile(log_here(block), "docs/spark.md", "exec"), names)
    again = consumer.messages(LINES - 1200, finish=True)
    # The batch of a publish has one timestamp.
    assert [message.body for message in again] == bodies[1200:]
    consumer.close()

    # A new channel has the messages still in the log; a separate topic has the archive's older ones.
    log_node.post("/channel/delete?topic=orders&channel=kept")
    first = wait_until(lambda: json.loads(log_node.http("GET", "/topic/log?topic=orders")[1])["first_offset"],
                       "retention to remove segments")
    (tmp_path / "var").mkdir()
    (tmp_path / "var" / "lib").symlink_to(tmp_path)
    (tmp_path / "archive").symlink_to(tmp_path / "orders-archive")
    create, fill = blocks("docs/spark.md", "python", "Recipe: backfill a new channel")
    for block in (create, fill):
        exec(compile(log_here(block), "docs/spark.md", "exec"), names)
    found = []
    for topic, channel, count in (("orders.audit", "audit", names["begins"]), ("orders", "audit", LINES - names["begins"])):
        consumer = log_node.connect().sub(topic, channel, 2500)
        found += [message.body for message in consumer.messages(count, finish=True)]
        consumer.close()
    assert 0 < first <= names["begins"] and found == bodies


def test_words_that_are_wrong_are_told_before_spark_starts(node, here, tmp_path, capfd):
    accesslog.write(tmp_path / "access.csv", 3)
    tcp, http = f"127.0.0.1:{node.tcp_port}", f"127.0.0.1:{node.http_port}"
    node.post("/topic/create?topic=present")
    cases = {
        f"--topic present --nsqd {http}": f"{http} is the HTTP port of an nsqd: give its TCP port, --nsqd {tcp}",
        f"--topic presnet --nsqd {tcp}": "no topic presnet; there ",
        f"--topic present --nsqlookupd {tcp}": f"{tcp} is the TCP port of an nsqd: give it as --nsqd {tcp}",
        f"--topic present --nsqd {tcp} --tls": "does not offer tls: omit --tls",
    }
    for words, complaint in cases.items():
        assert run(["spark", "produce", "access.csv", *words.split()]) == 1
        told, errors = capfd.readouterr()
        assert told == "" and errors.startswith("nsqc spark: ") and complaint in errors, errors
        assert errors.count("\n") == 1 and "starting Spark" not in errors
