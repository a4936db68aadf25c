"""The stream reader as Spark calls it, without a session: offsets, limits, shares, damage."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxFiles, ReadMaxRows, ReadMinRows

import nsqc.spark.reader
from nsqc.spark import options
from nsqc.spark.reader import DataLoss, NsqStreamReader
from nsqc.spark.stagelog import StageError
from tests.spark.conftest import address
from tests.spark.test_stagelog import fill, numbered
from tests.support.daemon import wait_until
from tests.support.patience import WAIT_SECONDS

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def reader(tmp_path, daemon):
    """reader(option=...): on a log of 100 rows in frames of 10, and a daemon that has the topic but no messages."""
    one = daemon()
    running = []

    def make(**more) -> NsqStreamReader:
        made = NsqStreamReader(options.stream({"nsqd": address(one), "topic": "t", "channel": "c",
                                               "stagingDir": str(tmp_path / "stage"), **more}))
        if not made.stage.rows:
            fill(made.stage, *[10] * 10)
        running.append(made)
        return made

    make.daemon = one
    yield make
    for made in running:
        made.stop()


def at(reader: NsqStreamReader, row: int) -> dict:
    return {"log": reader.stage.uuid, "rows": row}


def values(reader: NsqStreamReader, start: int, end: int) -> list[list[bytes]]:
    planned = pickle.loads(pickle.dumps(reader.partitions(at(reader, start), at(reader, end))))
    executor = pickle.loads(pickle.dumps(reader))
    return [[row for batch in executor.read(part) for row in batch.column(0).to_pylist()] for part in planned]


@pytest.mark.parametrize("transport", ["file", "inline"])
@pytest.mark.parametrize(("start", "end"), [(0, 100), (5, 6), (9, 11), (33, 87), (99, 100)])
def test_shares_are_the_rows_in_order(reader, transport, start, end):
    made = reader(transport=transport, numPartitions="3")
    found = values(made, start, end)
    assert [value for share in found for value in share] == numbered(start, end)
    assert len(found) == min(3, end - start) and max(map(len, found)) - min(map(len, found)) <= 1
    assert made.partitions(at(made, 5), at(made, 5)) == []


def test_an_inline_share_needs_no_folder(reader):
    made = reader(transport="inline")
    share = made.partitions(at(made, 0), at(made, 20))[0]
    for path in made.stage.folder.glob("*.seg"):
        path.unlink()
    assert sum(batch.num_rows for batch in made.read(share)) == 10


@pytest.mark.parametrize(("limit", "end"), [
    (ReadAllAvailable(), 100), (ReadMaxRows(30), 50), (ReadMaxRows(1000), 100), (ReadMaxBytes(1), 30),
    (ReadMinRows(50), 100), (ReadMinRows(90), 20)])
def test_limits(reader, limit, end):
    made = reader()
    assert made.latestOffset(at(made, 20), limit) == at(made, end)


def test_inline_batches_are_bounded(reader, monkeypatch):
    """They pass through the driver's memory."""
    made = reader(transport="inline")
    frame = made.stage.places(20, 30)[0].length
    monkeypatch.setattr(nsqc.spark.reader, "INLINE_BYTES", 3 * frame)
    assert made.latestOffset(at(made, 20), ReadAllAvailable()) == at(made, 50)
    assert made.latestOffset(at(made, 50), ReadMaxRows(20)) == at(made, 70)


def test_a_limit_of_files_is_refused(reader):
    made = reader()
    with pytest.raises(NotImplementedError, match="is not supported"):
        made.latestOffset(at(made, 0), ReadMaxFiles(3))


def test_the_limit_of_the_options(reader):
    assert reader().getDefaultReadLimit() == ReadAllAvailable()
    assert NsqStreamReader(options.stream({"nsqd": "a:1", "topic": "t", "channel": "c", "stagingDir": "/s",
                                           "maxRowsPerBatch": "7"})).getDefaultReadLimit() == ReadMaxRows(7)


@pytest.mark.parametrize(("offset", "says", "resumes"), [
    ({"log": "other", "rows": 10}, "another staging log", 0), ({"rows": 101}, "ends at row 100", 100)])
def test_offsets_that_do_not_fit_are_refused_before_subscribing(reader, offset, says, resumes):
    made = reader()
    offset = at(made, 0) | offset
    with pytest.raises(DataLoss, match=rf"{says}.*failOnDataLoss=false"):
        made.latestOffset(offset, ReadAllAvailable())
    assert made._stager is None and not reader.daemon.stats()["topics"]
    made.stop()
    made = reader(failOnDataLoss="false")
    assert made.latestOffset(offset, ReadAllAvailable()) == at(made, 100)
    assert sum(map(len, values(made, resumes, 100))) == 100 - resumes
    wait_until(lambda: reader.daemon.stats()["topics"], "the subscription")


ENDS = """
import signal, sys
from nsqc.spark import options
from nsqc.spark.reader import NsqStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable

made = NsqStreamReader(options.stream({"nsqd": sys.argv[1], "topic": "t", "channel": "c", "stagingDir": sys.argv[2],
                                       "lingerMs": "60000"}))
made.latestOffset(made.initialOffset(), ReadAllAvailable())
print("consuming", flush=True)
signal.pause()
"""


def test_sigterm_without_stop_hands_messages_back(daemon, tmp_path):
    """As when Spark's signal comes before its own call of stop() has made progress."""
    one = daemon()
    one.post("/topic/create?topic=t")
    one.post("/channel/create?topic=t&channel=c")
    one.connect().pub("t", *numbered(0, 200))
    process = subprocess.Popen([sys.executable, "-c", ENDS, address(one), str(tmp_path / "stage")], cwd=ROOT,
                               stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"consuming\n"
        wait_until(lambda: one.channel("t", "c")["in_flight_count"] == 200)
        process.terminate()
        assert process.wait(WAIT_SECONDS) == 143
    finally:
        process.kill()
        process.stdout.close()
    channel = one.channel("t", "c")
    assert (channel["depth"], channel["in_flight_count"]) == (200, 0)


def test_a_start_releases_what_is_before_it(reader):
    made = reader()
    made.latestOffset(at(made, 40), ReadMaxRows(20))
    assert made.stage.released == 40 and made.initialOffset() == at(made, 40)
    made.commit(at(made, 70))
    assert made.stage.released == 70
    latest = made.reportLatestOffset()
    metrics = latest.pop("metrics")
    assert latest == at(made, 100) and metrics["backlog"] == 30
    # The last batch, which Spark never reports as finished.
    made.latestOffset(at(made, 70), ReadAllAvailable())
    metrics = made.reportLatestOffset()["metrics"]
    assert (metrics["backlog"], metrics["backlogBytes"], metrics["oldestAgeSeconds"]) == (0, 0, None)


@pytest.mark.parametrize("more", [{}, {"onBadRecord": "skip"}])
def test_a_damaged_frame_fails_or_is_skipped(reader, more):
    made = reader(**more)
    place = made.stage.places(30, 31)[0]
    with open(place.path, "r+b") as file:
        file.seek(place.offset + 40)
        file.write(b"\x01\x02")
    if more:
        assert [value for share in values(made, 0, 100) for value in share] == numbered(0, 30) + numbered(40, 100)
        return
    with pytest.raises(StageError, match=rf"at offset {place.offset}: .*onBadRecord=skip"):
        values(made, 0, 100)


def test_a_segment_that_executors_do_not_see_is_told(reader):
    made = reader()
    parts = made.partitions(at(made, 0), at(made, 100))
    next(made.stage.folder.glob("*.seg")).rename(made.stage.folder / "gone")
    with pytest.raises(DataLoss, match="a folder that all executors see, or use transport=inline"):
        list(made.read(parts[0]))
