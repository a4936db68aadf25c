"""The jobs from end to end: an access log into a topic, from there into an archive, a report of it, and back.

Slow: each query or job starts Python workers, and plans and commits batches; the first one waits for Java.
"""

import csv
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nsqc.client import Connection
from nsqc.spark.jobs import archive as archive_job
from nsqc.spark.jobs.ledger import Ledger
from tests.spark import accesslog
from tests.spark.conftest import SPARK_SECONDS, address, depth
from tests.support.daemon import Daemon, wait_until
from tests.support.patience import WAIT_SECONDS

LINES = 100_000
ROOT = Path(__file__).parent.parent.parent
ENV = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1",
       "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


def consume(daemon: Daemon, topic: str, channel: str = "all") -> list[bytes]:
    """All messages waiting in a channel, in order."""
    total, found = depth(daemon, topic), []
    with Connection(address(daemon)) as client:
        client.subscribe(topic, channel)
        client.ready(2500)
        while len(found) < total:
            batch = client.receive(WAIT_SECONDS)
            assert batch, f"{len(found)} of {total}"
            client.finish_ids(b"".join(message.id for message in batch))
            found += [message.body for message in batch]
    return found


def archived(folder: Path) -> pa.Table:
    """All rows of an archive by its ledger, in the files' order."""
    return pa.concat_tables(pq.read_table(folder / name, partitioning=None) for name in sorted(Ledger(folder).read().files))


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """The access log, and its rows as JSON."""
    path = accesslog.write(tmp_path_factory.mktemp("log") / "access.csv", LINES)
    with path.open(newline="") as file:
        return SimpleNamespace(path=path, rows=[json.dumps(row, separators=(",", ":"), ensure_ascii=False).encode()
                                                for row in blanks_are_null(csv.DictReader(file))])


def blanks_are_null(rows):
    return [{key: value or None for key, value in row.items()} for row in rows]


# ---------------------------------------------------------------------- the whole path


@pytest.mark.long
def test_an_access_log_through_all_jobs_loses_nothing(job, log, nsqd, topic, tmp_path):
    where, folder = f"--nsqd={address(nsqd)}", tmp_path / "archive"
    told = job("produce", log.path, f"--topic={topic}", where, "--create")
    assert told.startswith(f"published 100,000 messages to {topic} in ")
    assert depth(nsqd, topic) == LINES

    told = job("archive", folder, f"--topic={topic}", where, "--until-idle", "--batch-rows=40000", "--no-compact",
               "--create")
    assert "archived 100,000 messages in 6 files; the archive has 100,000" in told
    rows = archived(folder)
    assert Counter(rows["value"].to_pylist()) == Counter(log.rows)
    assert len(set(rows["id"].to_pylist())) == LINES
    assert rows.schema.names == ["value", "topic", "id", "timestamp", "attempts", "nsqd", "archived_at"]
    assert nsqd.channel(topic, "archive")["depth"] == 0

    assert job("compact", folder) == "6 files with 100000 rows are now 1\n"
    assert archived(folder).num_rows == LINES
    assert pq.read_table(folder).num_rows == LINES      # for readers without the ledger

    told = job("report", folder, f"--out={tmp_path / 'report.html'}")
    size = sum(map(len, log.rows))
    assert told.startswith(f"100,000 messages with {size / (1 << 20):.1f} MiB from ")
    page = (tmp_path / "report.html").read_text()
    assert f"Messages of {topic}" in page and page.count("<svg") == 8 and address(nsqd) in page
    largest = max(map(len, log.rows))
    assert f"{largest} B" in page

    told = job("replay", folder, f"--topic={topic}-again", where)
    assert told.startswith(f"published 100,000 messages to {topic}-again in ")
    assert depth(nsqd, f"{topic}-again") == LINES
    order = rows.sort_by([("timestamp", "ascending"), ("id", "ascending")])["value"].to_pylist()
    assert consume(nsqd, f"{topic}-again") == order


# ---------------------------------------------------------------------- produce


@pytest.mark.parametrize("name, words, expected", [
    ("a.csv", [], [b'{"host":"x","status":"200"}', b'{"host":"y, z","status":null}']),
    ("a.csv", ["--template={host} <{status}> {{}}"], [b"x <200> {}", b"y, z <> {}"]),
    ("a.csv", ["--column=host"], [b"x", b"y, z"]),
    ("bad.csv", [], [b'{"host":"x","status":"200"}', b""]),
    ("bad.csv", ["--column=host"], [b"x", b""]),
    ("bad.csv", ["--template={host}"], [b"x", b""]),
    ("a.csv", ["--no-header", "--template={_c1}"], [b"status", b"200", b""]),
    ("a.tsv", ["--column=status"], [b"200", b"404"]),
    ("a.jsonl", [], [b'{"host": "x", "deep": {"x": 1}}', b'{"host": "y", "n": 1.50, "big": 12345678901234567890} ', b""]),
    ("a.jsonl", ["--template={host}-{deep.x}"], [b"x-1", b"y-", b""]),
    ("a.jsonl", ["--column=host"], [b"x", b"y", b""]),
    ("a.jsonl", ["--format=text"], [b'{"host": "x", "deep": {"x": 1}}',
                                    b'{"host": "y", "n": 1.50, "big": 12345678901234567890} ', b"", b"{"]),
    ("a.parquet", [], [b'{"number":1,"raw":"AP8="}', b'{"number":2,"raw":null}']),
    ("a.parquet", ["--column=number"], [b"1", b"2"]),
    ("a.txt", [], ["grün".encode(), b" two "]),
])
def test_bodies_of_every_format(job, nsqd, topic, tmp_path, name, words, expected):
    (tmp_path / "a.csv").write_text('host,status\nx,200\n"y, z",\n')
    (tmp_path / "bad.csv").write_text('host,status\nx,200\ny,z,404\n')
    (tmp_path / "a.tsv").write_text("host\tstatus\nx\t200\ny\t404\n")
    (tmp_path / "a.jsonl").write_text(
        '{"host": "x", "deep": {"x": 1}}\n{"host": "y", "n": 1.50, "big": 12345678901234567890} \n\n{\n')
    pq.write_table(pa.table({"number": [1, 2], "raw": [b"\x00\xff", None]}), tmp_path / "a.parquet")
    (tmp_path / "a.txt").write_text("grün\n two \n")
    told = job("produce", tmp_path / name, f"--topic={topic}", f"--nsqd={address(nsqd)}", *words, "--skip-bad")
    good = [body for body in expected if body]
    assert told.startswith(f"published {len(good)} messages")
    assert ("1 invalid rows skipped" in told) == (len(good) < len(expected))
    assert consume(nsqd, topic) == good


@pytest.mark.parametrize("name, text, words, complaint", [
    ("a.csv", "a,b\n1,2\n", ["--template={c}"], "unknown column c; choose from a, b"),
    ("a.csv", "a,b\n1,2,3\n", [], "a.csv: 1,2,3"),
    ("a.json", '{"a": 1}\n\n{"a": \n', [], "a.json, line 3: not JSON: Expecting value"),
    ("a.json", '{"a": 1}\n[1]\n', ["--column=a"], "a.json, line 2: not a JSON object: [1]; --skip-bad skips such lines"),
    ("a.txt", "x\n\ny\n", [], "row 1 of the partition: value is empty"),
    ("a.json", '{"a": {"b": 1}}\n', ["--column=a"], "column a is struct<b:bigint>, which cannot be a body"),
])
def test_rows_that_are_no_messages_fail_the_job_in_one_line(job, nsqd, topic, tmp_path, name, text, words, complaint):
    (tmp_path / name).write_text(text)
    errors = job("produce", tmp_path / name, f"--topic={topic}", f"--nsqd={address(nsqd)}", *words, code=1)
    line = errors.splitlines()[-1]
    assert line.startswith("nsqc spark: ") and complaint in line, errors
    assert "Traceback" not in line and "\tat " not in line


def test_paths_are_taken_as_they_are_written(job, nsqd, topic, tmp_path):
    """A folder's name may look like a pattern: the archive is written and read there; only a missing folder counts as a
    pattern."""
    folder = tmp_path / "a[1]b{x,y}*"
    folder.mkdir()
    (folder / "one.txt").write_text("1\n")
    (tmp_path / "a1bx").mkdir()
    (tmp_path / "a1bx" / "one.txt").write_text("other\n")
    where = f"--nsqd={address(nsqd)}"
    assert job("produce", folder / "one.txt", f"--topic={topic}", where, "--create").startswith("published 1 messages")
    job("archive", folder / "archive", f"--topic={topic}", where, "--until-idle", "--create")
    told = job("replay", folder / "archive", f"--topic={topic}-again", where)
    assert told.startswith("published 1 messages") and consume(nsqd, f"{topic}-again") == [b"1"]
    assert job("produce", tmp_path / "a1b?" / "*.txt", f"--topic={topic}-b", where, "--create").startswith("published 1 mess")
    assert consume(nsqd, f"{topic}-b") == [b"other"]


def test_a_rate_is_kept_over_all_tasks(job, nsqd, topic, tmp_path):
    """Two tasks at 2000 a second together: nsqd's own timestamps of 1000 messages span at least half a second."""
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text("".join(f"{name}{number}\n" for number in range(500)))
    told = job("produce", tmp_path / "a.txt", tmp_path / "b.txt", f"--topic={topic}", f"--nsqd={address(nsqd)}",
               "--rate=2000")
    assert told.startswith("published 1,000 messages")
    client = nsqd.connect()
    client.sub(topic, "all", 2500)
    times = sorted(message.timestamp for message in client.messages(1000, finish=True))
    client.close()
    # The first of a step go at once, so each task is a step (50 rows) ahead of its time.
    assert times[-1] - times[0] >= (1000 - 200) / 2000 * 1e9


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_job_in_order(job, spark, nsqd, topic, tmp_path, number):
    """It would take minutes; the session stays usable."""
    (tmp_path / "a.txt").write_text("".join(f"{number}\n" for number in range(100_000)))

    def interrupt() -> None:
        wait_until(lambda: depth(nsqd, topic) > 100, "the first messages")
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=interrupt)
    thread.start()
    errors = job("produce", tmp_path / "a.txt", f"--topic={topic}", f"--nsqd={address(nsqd)}", "--rate=500", code=128 + number)
    thread.join()
    told = re.fullmatch(rf"nsqc spark: stopped by {signal.Signals(number).name}; at least ([\d,]+) messages were published",
                        errors.splitlines()[-1])
    assert told, errors
    # Each task may have had an unacknowledged step in transit.
    assert 100 < int(told[1].replace(",", "")) <= depth(nsqd, topic) < 100_000
    assert spark.range(3).count() == 3


def test_produce_as_a_process(nsqd, topic, log):
    done = subprocess.run([sys.executable, "-m", "nsqc", "spark", "produce", log.path, f"--topic={topic}",
                           f"--nsqd={address(nsqd)}", "--template={host} {status}"], capture_output=True, text=True,
                          timeout=SPARK_SECONDS, env=ENV)
    assert (done.returncode, done.stdout[:26]) == (0, "published 100,000 messages"), done.stderr
    assert depth(nsqd, topic) == LINES


# ---------------------------------------------------------------------- archive


def test_a_batch_that_spark_does_again_is_archived_once(job, nsqd, topic, tmp_path):
    folder, where = tmp_path / "archive", f"--nsqd={address(nsqd)}"
    words = ["archive", folder, f"--topic={topic}", where, "--until-idle", "--batch-rows=60", "--no-compact",
             "--create"]
    nsqd.connect().pub(topic, *(b"%d" % number for number in range(100)))
    assert "archived 100 messages in 4 files" in job(*words)
    commits = folder / "_state" / "checkpoint" / "commits"
    for path in (commits / "1", commits / ".1.crc"):
        path.unlink()       # as if it had been killed between the ledger and Spark's own commit
    wait_until(lambda: nsqd.channel(topic, "archive")["client_count"] == 0, "the first run's consumer to leave")
    nsqd.connect().pub(topic, *(b"%d" % number for number in range(100, 150)))
    told = job(*words)
    assert "batch 1 is already in the archive" in told and "archived 50 messages in 2 files" in told
    assert sorted(map(int, archived(folder)["value"].to_pylist())) == list(range(150))


def test_another_checkpoint_is_refused(job, nsqd, topic, tmp_path):
    folder = tmp_path / "archive"
    words = ["archive", folder, f"--topic={topic}", f"--nsqd={address(nsqd)}", "--until-idle", "--create"]
    nsqd.connect().pub(topic, b"x")
    job(*words)
    (folder / "_state" / "checkpoint").rename(tmp_path / "elsewhere")
    assert "is not the checkpoint that" in job(*words, code=1)
    assert nsqd.channel(topic, "archive")["depth"] == 0


def test_messages_go_to_the_utc_day_of_their_timestamp(spark, tmp_path):
    """Independent of the session's time zone. The store is what foreachBatch calls."""
    ledger = Ledger(tmp_path / "archive", "t")
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Auckland")
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    try:
        frame = spark.sql("select X'41' value, 't' topic, 'i' id, timestamp_micros(m) timestamp, 1 attempts, 'n' nsqd "
                          "from values (1763683199999999), (1763683200000000) as t(m)")
        with ledger.job("archive") as space:
            store = archive_job.Store(ledger, space, report=lambda _: None)
            (ledger.folder / "_state" / "checkpoint").mkdir(parents=True)
            (ledger.folder / "_state" / "checkpoint" / "metadata").write_text('{"id": "abcdef01-x"}')
            store.put(frame, 0)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
    days = {name.split("/")[0]: (file.first, file.last) for name, file in ledger.read().files.items()}
    assert days == {"date=2025-11-20": (1763683199999999,) * 2, "date=2025-11-21": (1763683200000000,) * 2}


@pytest.mark.long
def test_by_spark_submit_it_runs_until_sigterm(nsqd, topic, tmp_path):
    submit = Path(sys.executable).with_name("spark-submit")
    nsqd.connect().pub(topic, *(b"%d" % number for number in range(500)))
    folder = tmp_path / "archive"
    process = subprocess.Popen(
        [submit, "--master", "local[1]", "--conf", "spark.ui.enabled=false", ROOT / "nsqc/spark/jobs/archive.py", folder,
         f"--topic={topic}", f"--nsqd={address(nsqd)}", "--every=0.2", "--max-in-flight=100", "--create"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENV)
    try:
        wait_until(lambda: ((folder / "_ledger.json").exists() and Ledger(folder).read().rows == 500)
                   or process.poll() is not None, "the first messages", SPARK_SECONDS)
        nsqd.connect().pub(topic, *(b"%d" % number for number in range(500, 600)))
        wait_until(lambda: Ledger(folder).read().rows == 600 or process.poll() is not None, "the others")
        python = wait_until(lambda: python_of(folder), "the job's Python")
        os.kill(python, signal.SIGTERM)
        told, _ = process.communicate(timeout=SPARK_SECONDS)
    finally:
        process.kill()
    assert process.returncode == 0, told
    assert "archived 600 messages" in told and "Traceback" not in told
    assert sorted(map(int, archived(folder)["value"].to_pylist())) == list(range(600))
    channel = nsqd.channel(topic, "archive")
    assert (channel["depth"], channel["in_flight_count"], channel["client_count"]) == (0, 0, 0)


def python_of(folder: Path) -> int | None:
    """The Python process of the job that archives into this folder."""
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if b"python" in words[0] and str(folder).encode() in words:
                return int(entry.name)
    return None


# ---------------------------------------------------------------------- replay


def two_sources(tmp_path: Path, count: int) -> Ledger:
    """An archive of messages from two nsqd, a millisecond between messages, in two files in no order."""
    ledger = Ledger(tmp_path / "archive", "t")
    base = 1_800_000_000_000_000
    rows = [{"value": b"%s%d" % (node.encode(), number), "topic": "t", "id": f"{number:016x}", "attempts": 1,
             "timestamp": base + number * 1000, "nsqd": f"{node}:4150", "archived_at": base + 10_000_000}
            for node in "ab" for number in range(count)]
    random.Random(3).shuffle(rows)
    schema = pa.schema([("value", pa.binary()), ("topic", pa.string()), ("id", pa.string()),
                        ("timestamp", pa.timestamp("us", tz="UTC")), ("attempts", pa.int32()), ("nsqd", pa.string()),
                        ("archived_at", pa.timestamp("us", tz="UTC"))])
    with ledger.job("archive") as space:
        for number in range(2):
            path = space / f"{number}.parquet"
            pq.write_table(pa.Table.from_pylist(rows[number::2], schema), path)
            ledger.commit({f"date=2027-01-15/{number:012d}-00000000-0.parquet": path})
    return ledger


def test_replay_of_a_time_range_keeps_the_order_of_each_nsqd(job, nsqd, topic, tmp_path):
    ledger = two_sources(tmp_path, 1000)
    told = job("replay", ledger.folder, f"--topic={topic}", f"--nsqd={address(nsqd)}",
               "--from=2027-01-15T08:00:00.100", "--to=2027-01-15T09:00:00.400+01:00", "--rate=100000")
    assert told.startswith("published 600 messages")
    found = [body.decode() for body in consume(nsqd, topic)]
    for node in "ab":
        assert [body for body in found if body[0] == node] == [f"{node}{number}" for number in range(100, 400)]


def test_replay_at_the_original_pace(job, nsqd, topic, tmp_path):
    """1000 messages a millisecond apart, at a quarter of their pace, measured by nsqd's timestamps."""
    ledger = two_sources(tmp_path, 1000)
    job("replay", ledger.folder, f"--topic={topic}", f"--nsqd={address(nsqd)}", "--speed=0.25")
    client = nsqd.connect()
    client.sub(topic, "all", 2500)
    messages = client.messages(2000, finish=True)
    client.close()
    first = min(message.timestamp for message in messages)
    # Four seconds, less the first message's connection time; without a pace all go at once.
    assert max(message.timestamp for message in messages) - first >= 1e9
    for node in b"ab":
        assert [int(message.body[1:]) for message in messages if message.body[0] == node] == list(range(1000))


def test_nothing_to_replay_is_no_failure_and_nothing_to_report_is(job, nsqd, tmp_path):
    folder = two_sources(tmp_path, 3).folder
    told = job("replay", folder, f"--nsqd={address(nsqd)}", "--to=2020-01-01")
    assert told == "the archive has no messages of that time range\n"
    assert "no messages in that time" in job("report", folder, "--to=2020-01-01", f"--out={tmp_path}/r.html", code=1)
    assert not (tmp_path / "r.html").exists()


# ---------------------------------------------------------------------- backfill


@pytest.fixture
def dead(tmp_path):
    """The data path of a stopped daemon: 1000 messages, of which channel a has received 600 and b none; 50 of another
    topic without channels."""
    one = Daemon(tmp_path / "dead", "--mem-queue-size=0")
    try:
        one.post("/topic/create?topic=orders")
        for channel in "ab":
            one.post(f"/channel/create?topic=orders&channel={channel}")
        client = one.connect()
        client.pub("orders", *(b"order %d" % number for number in range(1000)))
        client.pub("lone", *(b"lone %d" % number for number in range(50)))
        reader = one.connect()
        reader.sub("orders", "a", 100)
        reader.messages(600, finish=True)
        # Messages in flight go back to the queue when the daemon stops.
        wait_until(lambda: sum(one.channel("orders", "a")[key] for key in ("depth", "in_flight_count")) == 400,
                   "the finishing")
        reader.close()
        assert one.stop() == 0
        yield one.data_path
    finally:
        one.close()


def test_backfill_publishes_each_waiting_message_once(job, daemon, dead):
    live = daemon()
    told = job("backfill", dead, f"--nsqd={address(live)}", f"--http=127.0.0.1:{live.http_port}", "--create")
    assert told.startswith("read 50 messages of lone\nread 400 messages of orders, channel a\n"
                           "read 1,000 messages of orders, channel b\npublished 1,050 messages to lone, orders in ")
    assert "lone: 50 published, 50 accepted by nsqd; depth: lone 50\n" in told
    assert "orders: 1,000 published, 1,000 accepted by nsqd; depth: orders 1,000\n" in told
    assert sorted(consume(live, "orders")) == sorted(b"order %d" % number for number in range(1000))
    words = ["backfill", dead, f"--nsqd={address(live)}", f"--http=127.0.0.1:{live.http_port}"]
    again = job(*words, code=1)
    assert re.search(r"dead was published on 2\S+ \(1,050 messages\): --again publishes it once more\n$", again), again
    assert depth(live, "lone") == 50
    assert job(*words, "--topic=lone", "--again").startswith("read 50 messages of lone\npublished 50 messages to lone in ")
    assert depth(live, "lone") == 100


def test_backfill_of_one_channel_to_a_topic_of_its_own(job, daemon, dead):
    live = daemon()
    told = job("backfill", dead, f"--nsqd={address(live)}", f"--http=127.0.0.1:{live.http_port}", "--topic=orders",
               "--channel=a", "--to-topic=orders.a", "--create")
    assert re.fullmatch(r"read 400 messages of orders, channel a\npublished 400 messages to orders\.a in .*\n"
                        r"orders\.a: 400 published, 400 accepted by nsqd; depth: orders\.a 400\n", told)
    assert depth(live, "orders") == depth(live, "lone") == 0


def test_a_data_path_is_locked_while_it_is_backfilled(daemon, dead):
    from nsqc.spark.jobs.backfill import unused

    with unused(dead), pytest.raises(AssertionError, match=r"the daemon left with 1: .*failed to lock data-path"):
        Daemon(dead)
