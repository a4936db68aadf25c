"""Jobs on log-backed topics.

Slow: each query or job starts Python workers, and plans and commits batches; the first one waits for Java.
"""

import json
import re
import time
import urllib.request
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nsqc.commands.app import run
from nsqc.spark.jobs import archive, running
from nsqc.spark.jobs import nodes as logs
from nsqc.spark.jobs.arguments import Cluster
from nsqc.spark.jobs.ledger import Ledger
from nsqc.spark.log.ranges import Place
from tests.rules.letters import die
from tests.spark.conftest import address, depth
from tests.support.daemon import Daemon, wait_until
from tests.support.patience import WAIT_SECONDS
from tests.support.secure import make_certificates


@pytest.fixture(scope="module")
def second(tmp_path_factory):
    """Another node with topics in logs."""
    one = Daemon(tmp_path_factory.mktemp("second") / "data", "--topic-storage=log", "--log-retain-time=1h")
    yield one
    one.close()


def where(*nodes: Daemon) -> list[str]:
    """The options of a cluster."""
    return [f"--nsqd={address(*nodes)}", f"--http={','.join(f'127.0.0.1:{one.http_port}' for one in nodes)}"]


def bodies_of(node: Daemon, topic: str) -> list[bytes]:
    """Everything in a log, in its order."""
    text = node.http("GET", f"/topic/log?topic={topic}")[1]
    assert json.loads(text)["first_offset"] == 0
    request = urllib.request.Request(f"http://127.0.0.1:{node.http_port}/topic/read?topic={topic}&max_bytes=60000000",
                                     headers={"Accept": "application/x-ndjson"})
    with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as answer:
        return [json.loads(line)["body"].encode() for line in answer.read().splitlines()]


def in_memory(node: Daemon, topic: str) -> None:
    """A topic in memory on a node whose others are in logs."""
    node.http("PUT", f"/topic/rules?topic={topic}", b'{"storage": "memory"}')
    node.post(f"/topic/create?topic={topic}")


def lag(job, topic: str, *words: str) -> list[dict]:
    """The output of the job lag for a topic, as JSON."""
    return json.loads(job("lag", f"--topic={topic}", *words, "--json"))["readers"]


# ---------------------------------------------------------------------- replay


def test_replay_of_a_range_of_offsets(job, spark, log_node, topic):
    log_node.publish(topic, *(b"%d" % number for number in range(20)), size=1)
    to = f"--topic={topic}-again"
    told = job("replay", f"--from-topic={topic}", to, *where(log_node), "--from-offset=5", "--to-offset=15", "--create")
    assert told.startswith(f"published 10 messages to {topic}-again in ")
    assert bodies_of(log_node, f"{topic}-again") == [b"%d" % number for number in range(5, 15)]
    assert depth(log_node, topic) == 20
    assert job("replay", f"--from-topic={topic}", to, *where(log_node), "--from-offset=20") == (
        "the log has no messages of that range\n")


def test_replay_of_a_time_range_of_two_nodes(job, spark, log_node, second, topic):
    log_node.publish(topic, *(b"a%d" % number for number in range(10)), size=1)
    second.publish(topic, *(b"b%d" % number for number in range(10)), size=1)
    time.sleep(0.01)
    start = time.time()
    second.publish(topic, *(b"b%d" % number for number in range(10, 15)), size=1)
    log_node.publish(topic, *(b"a%d" % number for number in range(10, 15)), size=1)
    time.sleep(0.01)
    end = time.time()
    log_node.publish(topic, b"a15", size=1)
    span = [f"--{name}={time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(at))}.{int(at % 1 * 1e6):06d}"
            for name, at in (("from", start), ("to", end))]
    for number, words in enumerate(([], ["--speed=1000"], ["--rate=100000"])):
        to = f"{topic}-{number}"
        told = job("replay", f"--from-topic={topic}", f"--topic={to}", *where(log_node, second), *span, *words, "--create")
        assert told.startswith(f"published 10 messages to {to} in ")
        found = [body for node in (log_node, second) if depth(node, to) for body in bodies_of(node, to)]
        for name in (b"a", b"b"):
            assert [body for body in found if body[:1] == name] == [name + b"%d" % at for at in range(10, 15)]


def test_by_nsqlookupd(job, spark, log_node, second, lookupd, topic, tmp_path):
    log_node.publish(topic, b"a0", b"a1", size=1)
    second.publish(topic, b"b0", size=1)
    second.post(f"/channel/create?topic={topic}&channel=c&from=beginning")
    found = f"--nsqlookupd={lookupd(log_node, second)}"
    (row,) = lag(job, topic, found)
    assert (row["nsqd"], row["name"], row["lag_messages"]) == (address(second), "c", 1)
    told = job("replay", f"--from-topic={topic}", f"--topic={topic}-again", found, "--create")
    assert told.startswith(f"published 3 messages to {topic}-again")
    assert "archived 3 messages" in job("archive", tmp_path / "archive", f"--topic={topic}", found, "--until-idle",
                                        "--create")
    # A topic that does not exist yet, on nsqd that store topics in logs by rule.
    told = job("archive", tmp_path / "empty", f"--topic={topic}-new", found, "--until-idle", "--create")
    assert told == "archived 0 messages in 0 files; the archive has 0\n"
    assert second.stats(f"{topic}-new")["channels"] == []


def test_by_https(job, spark, daemon, topic, tmp_path):
    certs = make_certificates(tmp_path)
    one = daemon("--topic-storage=log", f"--tls-cert={certs}/server.pem", f"--tls-key={certs}/server.key",
                 "--tls-required=tcp-https")
    https = re.search(r"HTTPS: listening on \S+:(\d+)", one.log)[1]
    (tmp_path / "bodies.txt").write_text("0\n1\n2\n")
    nodes = [f"--nsqd={address(one)}", "--tls", f"--tls-ca-file={certs}/server.pem"]
    told = job("produce", tmp_path / "bodies.txt", f"--topic={topic}", *nodes, "--create")
    assert told.startswith("published 3 messages")
    nodes.append(f"--http=127.0.0.1:{https}")
    told = job("replay", f"--from-topic={topic}", f"--topic={topic}-again", *nodes, "--create", "--from-offset=1")
    assert told.startswith("published 2 messages")
    words = ["archive", tmp_path / "archive", f"--topic={topic}", *nodes, "--until-idle"]
    assert "archived 3 messages" in job(*words, "--create")
    (row,) = lag(job, topic, *nodes, f"--checkpoint={tmp_path}/archive/_state/checkpoint")
    assert (row["position"], row["lag_messages"]) == (3, 0)
    told = job("lag", nodes[0], "--tls", nodes[-1], code=1)
    assert "certificate verify failed: " in told and told.endswith("give others by --tls-ca-file\n")


def test_a_log_that_cannot_be_replayed(job, log_node, second, topic):
    log_node.publish(topic, b"0", b"1", size=1)
    second.publish(topic, b"0", size=1)
    in_memory(log_node, f"{topic}-mem")
    one, both = where(log_node), where(log_node, second)
    a, b = address(log_node), address(second)
    to = f"--topic={topic}-again"
    for words, complaint in {
        (f"--from-topic={topic}-mem", *one): f"topic {topic}-mem is kept in memory; its rule has to say storage = ",
        (f"--from-topic={topic}x", *one): f"no topic {topic}x; there are {topic}, ",
        (f"--from-topic={topic}", *one, "--from-offset=3"): f"topic {topic} at {a} has offsets 0 to 2",
        (f"--from-topic={topic}", *one, "--from-offset=2", "--to-offset=1"): "--from-offset 2 is after --to-offset 1",
        (f"--from-topic={topic}", *both, "--from-offset=1"): "the topic is on 2 nsqd, each with its own offsets",
        (f"--from-topic={topic}", *one, f'--to-offset={{"{b}": 1}}'): f"{b} does not have the topic; there is {a}",
        (f"--from-topic={topic}", f"--nsqd={a},127.0.0.1:1", f"--http={one[1][7:]},127.0.0.1:2"):
            "all nsqd must answer, or messages would be missing",
        (f"--from-topic={topic}", f"--nsqd={a}", f"--http=127.0.0.1:{second.http_port}"):
            f"is not the HTTP address of {a}: give it by --http",
    }.items():
        errors = job("replay", *words, to, "--create", code=1)
        line = errors.splitlines()[-1]
        assert line.startswith("nsqc spark: ") and complaint in line, (words, errors)
        assert "starting Spark" not in errors and "Traceback" not in errors
    errors = job("replay", f"--from-topic={topic}", f"--topic={topic}x", *one, code=1)
    assert re.search(rf"no topic {topic}x; there are {topic}, .*; --create creates it\n$", errors), errors


def test_a_node_by_two_names_is_counted_once(log_node, topic):
    log_node.publish(topic, b"0", b"1", size=1)
    names = [f"{host}:{log_node.tcp_port}" for host in ("127.0.0.1", "localhost")]
    notes = []
    found = logs.fixed(Cluster({"nsqd": ",".join(names)}, (f"127.0.0.1:{log_node.http_port}", f"localhost:{log_node.http_port}"),
                               create=False), [topic], notes.append)
    assert (found.messages, found.ends) == (2, {Place(topic, names[0]): 2})
    assert notes == [f"topic {topic} at {names[1]} is the same log as at {names[0]}: it is read once"]


# ---------------------------------------------------------------------- archive


def archived(folder: Path):
    """The rows of an archive by its ledger."""
    files = Ledger(folder).read().files
    return pa.concat_tables(pq.read_table(folder / name, partitioning=None) for name in sorted(files))


def test_an_archive_of_a_log(job, spark, log_node, second, topic, tmp_path):
    folder = tmp_path / "archive"
    words = ["archive", folder, f"--topic={topic}", *where(log_node, second), "--until-idle", "--no-compact"]
    log_node.publish(topic, *(b"a%d" % number for number in range(30)), size=1)
    second.publish(topic, *(b"b%d" % number for number in range(20)), size=1)
    told = job(*words, "--batch-rows=40", "--create")
    assert "batch 0: 40 messages in " in told and "archived 50 messages in " in told
    assert not log_node.stats(topic)["channels"]
    assert not (folder / "_state" / "staging").exists()
    # As if it had been killed between the ledger and Spark's own commit.
    commits = folder / "_state" / "checkpoint" / "commits"
    for path in (commits / "1", commits / ".1.crc"):
        path.unlink()
    second.publish(topic, *(b"b%d" % number for number in range(20, 25)), size=1)
    told = job(*words)
    assert "batch 1 is already in the archive" in told and "archived 5 messages in " in told
    rows = archived(folder)
    assert rows.schema.names == ["value", "topic", "id", "timestamp", "attempts", "nsqd", "offset", "origin",
                                 "archived_at"]
    found = sorted(zip(rows["nsqd"].to_pylist(), rows["offset"].to_pylist(), rows["value"].to_pylist(), strict=True))
    assert found == sorted([(address(log_node), number, b"a%d" % number) for number in range(30)]
                           + [(address(second), number, b"b%d" % number) for number in range(25)])

    second.publish(topic, b"b25", b"b26", size=1)
    checkpoint = folder / "_state" / "checkpoint"
    rows = {row["nsqd"]: row for row in lag(job, topic, *where(log_node, second), f"--checkpoint={checkpoint}")}
    one, two = rows[address(log_node)], rows[address(second)]
    assert (one["kind"], one["position"], one["lag_messages"], one["lag_seconds"]) == ("query", 30, 0, 0.0)
    assert (two["kind"], two["position"], two["latest"], two["lag_messages"]) == ("query", 25, 27, 2)
    assert two["lag_seconds"] > 0

    # Readers of archives know this one as well.
    assert re.fullmatch(r"\d files with 55 rows are now 1\n", job("compact", folder))
    told = job("replay", folder, f"--topic={topic}-again", *where(log_node), "--create")
    assert told.startswith(f"published 55 messages to {topic}-again")
    found = bodies_of(log_node, f"{topic}-again")
    for name, count in ((b"a", 30), (b"b", 25)):
        assert [body for body in found if body[:1] == name] == [name + b"%d" % number for number in range(count)]
    assert "was read from the log of" in job(*words, "--channel=archive", code=1)
    for word in ("--idle=1", "--max-in-flight=5"):
        assert "is for consuming a channel; topic" in job(*words, word, code=2)


def test_an_archive_that_consumes_goes_on_consuming(job, spark, log_node, topic, tmp_path):
    """Even if the topic could be read by offset: its checkpoint fits nothing else."""
    folder = tmp_path / "archive"
    words = ["archive", folder, f"--topic={topic}", *where(log_node), "--until-idle", "--idle=0.3", "--no-compact"]
    log_node.publish(topic, b"0", b"1", size=1)
    assert "archived 2 messages" in job(*words, "--channel=archive", "--create")
    log_node.publish(topic, b"2", size=1)
    assert "archived 1 messages" in job(*words)
    assert [channel["channel_name"] for channel in log_node.stats(topic)["channels"]] == ["archive"]
    checkpoint = folder / "_state" / "checkpoint"
    errors = job("lag", *where(log_node), f"--checkpoint={checkpoint}", code=1)
    assert f"{checkpoint} is the checkpoint of a query that consumes a channel: its lag is that" in errors
    assert "offset" not in archived(folder).schema.names


def test_a_log_without_a_time_of_retention_is_noted(job, log_node, topic, tmp_path, capfd):
    log_node.publish(topic, b"0", size=1)
    log_node.http("PUT", f"/topic/rules?topic={topic}", b'{"retain_time": "0s"}')
    with running.failures() as progress:
        cluster = Cluster({"nsqd": address(log_node)}, (f"127.0.0.1:{log_node.http_port}",), False)
        archive.of_log(tmp_path, cluster, topic, False, None, None, progress.note)
    assert "has no retain_time: messages finished by all channels may be removed before they are archived" in capfd.readouterr()[1]


def test_a_topic_in_memory_is_consumed(job, spark, log_node, topic, tmp_path):
    in_memory(log_node, topic)
    log_node.post(f"/channel/create?topic={topic}&channel=archive")
    log_node.publish(topic, b"0", size=1)
    words = ["archive", tmp_path / "archive", f"--topic={topic}", *where(log_node), "--until-idle", "--idle=0.3"]
    assert "archived 1 messages" in job(*words, "--create")
    assert log_node.channel(topic, "archive")["message_count"] == 1


def test_a_log_that_cannot_be_archived(job, log_node, second, topic, tmp_path):
    log_node.publish(topic, b"0", size=1)
    in_memory(second, topic)
    folder = tmp_path / "archive"
    both, one = where(log_node, second), where(log_node)
    half = [f"--nsqd={address(log_node)},127.0.0.1:1", f"--http=127.0.0.1:{log_node.http_port},127.0.0.1:2"]
    for words, complaint in {
        (*both, "--create"): f"topic {topic} is log-backed on only some nsqd ({address(log_node)}: log, ",
        (*half, "--create"): "the first run needs all nsqd",
        (one[0], both[1].replace(one[1].removeprefix("--http="), "").replace(",", ""), "--create"):
            f"is not the HTTP address of {address(log_node)}: give it by --http",
        (*half, "--create", "--until-idle"): "--until-idle needs all nsqd",
    }.items():
        errors = job("archive", folder, f"--topic={topic}", *words, code=1)
        assert complaint in errors.splitlines()[-1], errors
        assert "starting Spark" not in errors
    Ledger(folder, topic)
    log_node.post(f"/topic/delete?topic={topic}")
    assert f"no topic {topic}" in job("archive", folder, f"--topic={topic}", *one, code=1)
    # A log when the archive began, but not now.
    offsets = folder / "_state" / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").write_text(f'v1\n{{}}\n{{"topics": {{"{topic}": {{"{address(log_node)}": 1}}}}, "joined": {{}}}}')
    in_memory(log_node, topic)
    assert "is kept in memory; its rule has to say storage = " in job(
        "archive", folder, f"--topic={topic}", *one, code=1)


# ---------------------------------------------------------------------- report


def test_a_report_of_logs_and_of_logs_and_archives(job, spark, log_node, second, topic, tmp_path):
    log_node.publish(topic, *(b"%d" % number for number in range(30)), size=1)
    second.publish(f"{topic}-2", b"x" * 3000, size=1)
    words = ["report", f"--topic={topic},{topic}-2", *where(log_node, second), f"--out={tmp_path}/report.html"]
    told = job(*words)
    assert re.match(r"31 messages with 3\.0 KiB from \S+ \S+ to \S+ \S+\n", told), told
    page = (tmp_path / "report.html").read_text()
    # A chart for wide windows and for phones; latency and attempts are unknown.
    assert page.count("<svg") == 2 and "atency" not in page and "ttempt" not in page
    assert "2.9 KiB" in page and address(second) in page
    assert "no messages in that time range" in job(*words, "--to=2020-01-01", code=1)

    job("archive", tmp_path / "archive", f"--topic={topic}", *where(log_node), "--until-idle", "--create")
    told = job(*words, tmp_path / "archive")
    assert told.startswith("61 messages with ") and "; latency: median " in told
    page = (tmp_path / "report.html").read_text()
    assert page.count("<svg") == 6 and "ttempt" not in page and "Dead letters" not in page

    die(log_node, f"{topic}-3", "mail", b"1", b"2", b"3")
    job("report", f"--topic={topic}-3.dead", *where(log_node), f"--out={tmp_path}/report.html")
    page = re.sub("<[^>]*>", " ", (tmp_path / "report.html").read_text())
    assert re.search(rf"Dead letters by origin .* {topic}-3 +mail +requeued +3 +20", page), page


def test_words_that_do_not_go_together(job, topic, tmp_path):
    Ledger(tmp_path / "archive", "t")
    replay = ["replay", "--nsqd=127.0.0.1:1"]
    for words, complaint in [
        (replay, "give one of FOLDER and --from-topic"),
        ([*replay, tmp_path / "archive", "--from-topic=t", "--topic=u"], "give one of FOLDER and --from-topic"),
        ([*replay, tmp_path / "archive", "--from-offset=1"], "need --from-topic"),
        ([*replay, "--from-topic=t"], "give another --topic than t"),
        ([*replay, "--from-topic=t", "--topic=t"], "give another --topic than t"),
        ([*replay, "--from-topic=t", "--topic=u", "--from-offset=x"], "must be a whole number, or JSON by node"),
        ([*replay, "--from-topic=t", "--topic=u", "--to-offset={}"], "must be a whole number, or JSON by node"),
        ([*replay, "--from-topic=t", "--topic=u", '--to-offset={"a:1": -1}'], "must be a whole number, or JSON by node"),
        ([*replay, "--from-topic=t", "--topic=u", "--from-offset=" + "[" * 100_000], "must be a whole number, or JSON"),
        ([*replay, "--from-topic=t", "--topic=u", '--to-offset={"a:1": 1, "a:1": 2}'], 'contains "a:1" twice'),
        (["report"], "give archives, or --topic"),
        (["report", "--topic=t"], "--topic needs --nsqd"),
        (["report", tmp_path / "archive", "--nsqd=127.0.0.1:1"], "--topic needs --nsqd"),
        (["report", "--topic=t,t", "--nsqd=127.0.0.1:1"], "a name is given twice"),
        (["report", "--topic=t", "--http=127.0.0.1:1"], "give one of --nsqd and --nsqlookupd"),
    ]:
        errors = job(*words, code=2)
        assert complaint in errors and errors.count("\n") == 1, (words, errors)


# ---------------------------------------------------------------------- lag


def checkpoint_of(folder: Path, *sources: str, batch: int = 0) -> Path:
    """A checkpoint as Spark writes them, as far as the job reads it."""
    (folder / "offsets").mkdir(parents=True, exist_ok=True)
    (folder / "offsets" / str(batch)).write_text("\n".join(["v1", '{"batchWatermarkMs":0}', *sources]))
    return folder


def log_offset(**topics: dict[str, int]) -> str:
    return json.dumps({"topics": {name.replace("_", "-"): nodes for name, nodes in topics.items()}, "joined": {}})


def test_lag_of_channels_and_queries(job, log_node, second, topic, tmp_path):
    log_node.publish(topic, *(b"%d" % number for number in range(10)), size=1)
    second.publish(topic, b"x", size=1)
    log_node.post(f"/channel/create?topic={topic}&channel=mail&from=4")
    client = log_node.connect().sub(topic, "mail", 3)
    client.messages(3, finish=True)
    client.messages(3)
    wait_until(lambda: lag(job, topic, *where(log_node))[0]["lag_messages"] == 3, "the finishing")
    a = checkpoint_of(tmp_path / "a", "-", log_offset(**{topic: {address(log_node): 8}}), batch=9)
    checkpoint_of(a, log_offset(**{topic: {address(log_node): 10, address(second): 1}}), batch=10)
    b = checkpoint_of(tmp_path / "b", log_offset(**{topic: {address(log_node): 8}}), "-")
    words = [*where(log_node, second), f"--checkpoint={a}", f"--checkpoint=file://{b}"]
    rows = {(row["name"], row["nsqd"]): row for row in lag(job, topic, *words)}
    assert {key: (row["kind"], row["position"], row["latest"], row["lag_messages"]) for key, row in rows.items()} == {
        # Three are finished, three in flight: none is undelivered.
        ("mail", address(log_node)): ("channel", 10, 10, 3),
        (str(a), address(log_node)): ("query", 10, 10, 0),
        (str(a), address(second)): ("query", 1, 1, 0),
        (f"file://{b}", address(log_node)): ("query", 8, 10, 2),
        (f"file://{b}", address(second)): ("query", None, 1, 1),
    }
    assert {key[0] for key, row in rows.items() if row["lag_seconds"]} == {"mail", f"file://{b}"}

    told = job("lag", f"--topic={topic}", *words, f"--out={tmp_path}/lag.html").splitlines()
    assert told[0].split() == ["topic", "nsqd", "reader", "position", "latest", "behind", "oldest"]
    assert len(told) == 6 and len({len(line) for line in told}) == 1
    assert told[1].split()[:7] == [topic, address(log_node), "channel", "mail", "10", "10", "3"]
    client.close()
    page = (tmp_path / "lag.html").read_text()
    assert page.count("<svg") == 4 and f"{topic} at {address(log_node)}, channel mail: 3" in page


def test_lag_of_all_topics_leaves_out_those_in_memory(job, log_node, topic, capfd):
    log_node.publish(topic, b"0", size=1)
    in_memory(log_node, f"{topic}-mem")
    log_node.post(f"/channel/create?topic={topic}&channel=c&from=beginning")
    assert run(["spark", "lag", *where(log_node)]) == 0
    told, errors = capfd.readouterr()
    (line,) = [line for line in told.splitlines() if line.startswith(topic)]
    assert line.split()[:4] == [topic, address(log_node), "channel", "c"]
    assert re.search(r"^nsqc spark: [\d,]+ topics are stored in memory, and omitted$", errors, re.MULTILINE)
    assert run(["spark", "lag", *where(log_node), f"--topic={topic}-mem"]) == 1
    assert "is kept in memory; its rule has to say storage = " in capfd.readouterr()[1]


def test_a_lag_that_is_not_known_is_noted(job, log_node, second, topic, tmp_path, capfd):
    log_node.publish(topic, *(b"%d" % number for number in range(3)), size=1)
    behind = checkpoint_of(tmp_path / "c", log_offset(**{topic: {address(log_node): 7, "127.0.0.1:9": 5}}))
    assert run(["spark", "lag", *where(log_node), f"--topic={topic}", f"--checkpoint={behind}"]) == 0
    told, errors = capfd.readouterr()
    assert [line.split()[-4:] for line in told.splitlines()[1:]] == [["7", "3", "?", "?"], ["5", "?", "?", "?"]]
    assert "until offset 7, but it ends at 3: it was deleted and created again" in errors
    assert f"{behind} has read topic {topic} at 127.0.0.1:9, where it no longer exists" in errors
    # One of two nodes.
    nodes = f"--nsqd={address(log_node)},127.0.0.1:1", f"--http=127.0.0.1:{log_node.http_port},127.0.0.1:2"
    assert run(["spark", "lag", *nodes, f"--topic={topic}"]) == 0
    told, errors = capfd.readouterr()
    assert told == "" and "127.0.0.1:2: Connection refused; showing the others" in errors
    assert f"nsqc spark: no readers of {topic}\n" in errors


def test_lag_knows_logs_by_their_ids(job, log_node, second, topic, tmp_path, capfd):
    log_node.publish(topic, *(b"%d" % number for number in range(10)), size=1)
    second.publish(topic, b"x", size=1)
    one, other = (json.loads(node.http("GET", f"/topic/log?topic={topic}")[1])["id"] for node in (log_node, second))

    def positions(name: str, ends: dict[str, int], ids: dict[str, str]) -> dict[str, tuple]:
        offset = json.dumps({"topics": {topic: ends}, "joined": {}, "logs": {topic: ids}})
        words = [*where(log_node, second), f"--checkpoint={checkpoint_of(tmp_path / name, offset)}"]
        return {row["nsqd"]: (row["position"], row["lag_messages"]) for row in lag(job, topic, *words)}
    # One had another address, which the other one has now.
    assert positions("moved", {"127.0.0.1:9": 1, address(second): 7}, {"127.0.0.1:9": other, address(second): one}) == {
        address(log_node): (7, 3), address(second): (1, 0)}
    assert positions("again", {address(log_node): 7}, {address(log_node): "0" * 16}) == {
        address(log_node): (7, None), address(second): (None, 1)}
    assert run(["spark", "lag", *where(log_node), f"--topic={topic}", f"--checkpoint={tmp_path}/again"]) == 0
    assert "until offset 7, but it ends at 10: it was deleted and created again" in capfd.readouterr()[1]


def test_a_lag_that_cannot_be_shown(job, log_node, nsqd, topic, tmp_path):
    log_node.publish(topic, b"0", size=1)
    one = where(log_node)
    (tmp_path / "empty" / "offsets").mkdir(parents=True)
    kafka = checkpoint_of(tmp_path / "kafka", '{"orders":{"0":12}}')
    other = checkpoint_of(tmp_path / "other", log_offset(elsewhere={address(log_node): 0}))
    broken = checkpoint_of(tmp_path / "broken", '{"topics": 5, "joined": {}}')
    for number, offset in enumerate(("-5", "1.5", '"5"', "Infinity", str(2**70))):
        odd = checkpoint_of(tmp_path / f"odd{number}", f'{{"topics": {{"{topic}": {{"a:1": {offset}}}}}, "joined": {{}}}}')
        assert "does not have the offsets of a query" in job("lag", *one, f"--checkpoint={odd}", code=1)
    deep = checkpoint_of(tmp_path / "deep", "[" * 100_000)
    for words, code, complaint in [
        ([*one, f"--checkpoint={deep}"], 1, "is the checkpoint of a query that reads no log-backed topic"),
        ([*one, f"--checkpoint={tmp_path}"], 1, "is not a checkpoint of a query: it has no folder offsets"),
        ([*one, f"--checkpoint={tmp_path}/no"], 2, f"{tmp_path}/no does not exist"),
        ([*one, "--checkpoint=s3://bucket/c"], 2, "s3://bucket/c is not a local path"),
        ([*one, f"--checkpoint={tmp_path}/empty"], 1, "its query has not started a batch"),
        ([*one, f"--checkpoint={kafka}"], 1, "is the checkpoint of a query that reads no log-backed topic"),
        ([*one, f"--checkpoint={broken}"], 1, "does not have the offsets of a query"),
        ([*one, f"--topic={topic}", f"--checkpoint={other}"], 1, f"reads elsewhere, not {topic}"),
        ([*one, f"--topic={topic}x"], 1, f"no topic {topic}x; there are {topic}, "),
        (["--nsqd=127.0.0.1:1"], 1, "no nsqd is reachable over HTTP: 127.0.0.1:2: Connection refused"),
        ([f"--nsqd=127.0.0.1:{log_node.http_port}"], 1, "is the HTTP port of an nsqd: give its TCP port"),
        ([f"--nsqd={address(log_node)}"], 1, "give its HTTP address by --http"),
        ([f"--nsqd={address(log_node)}", "--http=127.0.0.1:1,127.0.0.1:2"], 1, "--http needs one address for each"),
        (["--nsqlookupd=127.0.0.1:1", "--http=127.0.0.1:2"], 1, "--http needs --nsqd"),
        ([], 2, "give one of --nsqd and --nsqlookupd"),
        ([*one, f"--out={tmp_path}/no/lag.html"], 2, "is not a file in an existing folder"),
    ]:
        line = job("lag", *words, code=code).splitlines()[-1]
        assert line.startswith("nsqc spark") and complaint in line, (words, line)
