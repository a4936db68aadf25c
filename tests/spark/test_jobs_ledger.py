"""Archives on disk: batches once, compaction and its crashes, concurrent readers. No Spark, no nsqd."""

import os
import shutil
import signal
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nsqc.spark.jobs.compact import MIB, compact
from nsqc.spark.jobs.ledger import Ledger, LedgerError, chosen, micros
from tests.support import nested

DAY = datetime(2026, 11, 20, tzinfo=UTC)
SCHEMA = pa.schema([("value", pa.binary()), ("timestamp", pa.timestamp("us", tz="UTC"))])
# All calls that change an archive.
CALLS = ("replace", "unlink", "fsync", "link", "mkdir", "rename")


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "archive", "t")


def write(path: Path, numbers, day: int = 0) -> Path:
    """A file with a row for each number, which is also the microsecond of the day."""
    base = micros(DAY) + day * 86_400_000_000
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table([[b"%d" % number for number in numbers], [base + number for number in numbers]],
                            schema=SCHEMA), path)
    return path


def put(ledger: Ledger, batch: int, numbers, day: int = 0, query: str = "a") -> bool:
    """The archive job's work on a batch."""
    with ledger.job("archive") as space:
        name = f"date={(DAY.date().replace(day=20 + day))}/{batch:012d}-{query:0>8}-0.parquet"
        return ledger.commit({name: write(space / "x.parquet", numbers, day)}, batch=(query, batch))


def rows(paths) -> list[int]:
    return [int(value) for path in paths for value in pq.read_table(path, columns=["value"], partitioning=None)
            ["value"].to_pylist()]


def by_ledger(ledger: Ledger) -> list[int]:
    return rows(ledger.folder / name for name in sorted(ledger.read().files))


def by_eye(ledger: Ledger) -> list[int]:
    """The rows seen by a reader that ignores the ledger."""
    return rows(sorted(ledger.folder.glob("date=*/*.parquet")))


def killed_at(step: int, action) -> bool:
    """Runs it in a process that is killed right before its step-th change on disk; returns whether it was."""
    child = os.fork()
    if not child:
        done = 0

        def counted(real):
            def call(*given, **named):
                nonlocal done
                done += 1
                if done == step:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*given, **named)
            return call

        for name in CALLS:
            setattr(os, name, counted(getattr(os, name)))
        try:
            action()
        except BaseException:
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, status
    return os.WIFSIGNALED(status)


# ---------------------------------------------------------------------- batches


def test_a_batch_comes_in_once(ledger):
    assert put(ledger, 0, range(3)) and put(ledger, 1, range(3, 5))
    assert not put(ledger, 1, range(3, 5)) and not put(ledger, 0, range(3))
    assert put(ledger, 0, [9], query="b")
    assert by_ledger(ledger) == by_eye(ledger) == [0, 1, 2, 9, 3, 4]


def test_a_file_is_never_written_over(ledger):
    put(ledger, 0, range(3))
    name, = ledger.read().files
    with pytest.raises(LedgerError, match="already exists"), ledger.job("archive") as space:
        ledger.commit({name: write(space / "x.parquet", [7])})
    assert by_ledger(ledger) == by_eye(ledger) == [0, 1, 2]


def test_the_ledger_knows_rows_bytes_and_times(ledger):
    put(ledger, 0, [5, 3, 8])
    (name, file), = ledger.read().files.items()
    assert (file.rows, file.first, file.last) == (3, micros(DAY) + 3, micros(DAY) + 8)
    assert file.bytes == (ledger.folder / name).stat().st_size


def test_only_files_that_can_have_rows_of_the_time_are_chosen(ledger):
    for batch in range(3):
        put(ledger, batch, range(10 * batch, 10 * batch + 10))
    base, state = micros(DAY), ledger.read()
    assert len(chosen(state, None, None)) == 3
    assert len(chosen(state, base + 9, base + 10)) == 1 and len(chosen(state, base + 9, base + 11)) == 2
    assert len(chosen(state, base + 29, None)) == 1 and len(chosen(state, base + 30, None)) == 0
    assert len(chosen(state, None, base)) == 0


@pytest.mark.parametrize("make, complaint", [
    (lambda path: Ledger(path), "is not an archive: it has no _ledger.json"),
    (lambda path: (path.mkdir(), (path / "mine").touch(), Ledger(path, "t")), "not empty: it has mine"),
    (lambda path: (Ledger(path, "t"), Ledger(path, "u")), "is an archive of topic t, not u"),
    (lambda path: (Ledger(path, "t"), (path / "_ledger.json").write_text("{"), Ledger(path)), "is not readable"),
    (lambda path: (Ledger(path, "t"), (path / "_ledger.json").write_bytes(nested.OBJECT), Ledger(path)), "nested too deeply"),
])
def test_what_is_no_archive_is_refused(tmp_path, make, complaint):
    with pytest.raises(LedgerError, match=complaint):
        make(tmp_path / "a")


def test_a_job_runs_once_at_a_time(ledger):
    with (ledger.job("archive"), ledger.job("compact"),
          pytest.raises(LedgerError, match=r"another archive of .* is running"), ledger.job("archive")):
        pass
    with ledger.job("archive"):
        pass


def test_a_missing_file_is_told_with_what_is_lost(ledger):
    put(ledger, 0, range(7))
    shutil.rmtree(ledger.folder / "date=2026-11-20")
    with pytest.raises(LedgerError, match="is missing, with 7 rows"), ledger.job("archive"):
        pass


def test_files_of_others_in_the_folder_are_left_alone(ledger):
    put(ledger, 0, range(3))
    (ledger.folder / "date=2026-11-20" / "notes.txt").write_text("mine")
    put(ledger, 1, range(3))
    assert (ledger.folder / "date=2026-11-20" / "notes.txt").read_text() == "mine"


def test_a_batch_whose_run_was_killed_anywhere_comes_in_once(ledger):
    expected: list[int] = []
    for step in range(1, 100):
        was_killed = killed_at(step, lambda step=step: put(ledger, step, [step]))
        put(ledger, step, [step])       # Spark retries the batch
        expected.append(step)
        assert by_ledger(ledger) == by_eye(ledger) == expected, step
        if not was_killed:
            break
    assert 8 < step < 99


# ---------------------------------------------------------------------- compaction


def test_small_files_of_a_day_become_one_in_their_order(ledger):
    for batch in range(5):
        put(ledger, batch, range(10 * batch, 10 * batch + 10), day=batch // 4)
    done = compact(ledger, MIB)
    assert done == (4, 1, 40)
    assert sorted(path.parent.name for path in ledger.folder.glob("date=*/*")) == ["date=2026-11-20", "date=2026-11-21"]
    assert by_ledger(ledger) == by_eye(ledger) == list(range(50))
    assert compact(ledger, MIB) == (0, 0, 0)
    assert not put(ledger, 4, range(40, 50), day=1)     # batches are still known


def test_files_of_half_the_size_are_left_and_no_file_grows_beyond_it(ledger):
    for batch in range(6):
        put(ledger, batch, range(1000 * batch, 1000 * batch + 1000))
    sizes = [file.bytes for file in ledger.read().files.values()]
    assert compact(ledger, 2 * min(sizes)) == (0, 0, 0)
    assert compact(ledger, 3 * max(sizes)).after == 2
    assert by_ledger(ledger) == list(range(6000))


def test_compaction_killed_anywhere_neither_loses_nor_doubles(ledger):
    for step in range(1, 100):
        for batch in range(3):
            put(ledger, 3 * step + batch, range(10 * batch, 10 * batch + 10))
        was_killed = killed_at(step, lambda: compact(ledger, MIB))
        assert sorted(by_ledger(ledger)) == sorted([*range(30)] * step), step     # a reader between crash and next job
        with ledger.job("archive"):
            pass
        assert by_ledger(ledger) == by_eye(ledger), step
        assert sorted(by_ledger(ledger)) == sorted([*range(30)] * step), step
        if not was_killed:
            break
    assert 10 < step < 99


def test_compaction_refuses_a_file_that_is_not_as_the_ledger_says(ledger):
    put(ledger, 0, range(5))
    put(ledger, 1, range(5))
    name = min(ledger.read().files)
    write(ledger.folder / name, range(4))
    with pytest.raises(RuntimeError, match="have 9 rows, not 10 as in the ledger; nothing was changed"):
        compact(ledger, MIB)
    assert len(ledger.read().files) == 2


# ---------------------------------------------------------------------- readers


def test_a_reader_keeps_its_files_through_compaction(ledger):
    put(ledger, 0, range(5))
    put(ledger, 1, range(5, 9))
    with ledger.pinned() as (paths, count):
        assert compact(ledger, MIB).after == 1
        put(ledger, 2, [9])
        assert (rows(paths), count) == (list(range(9)), 9)
    assert list(ledger.folder.glob("_pins/*")) == []
    with ledger.pinned() as (paths, _):
        assert rows(paths) == list(range(10))


def test_pins_of_a_reader_that_was_killed_are_removed_and_others_kept(ledger):
    put(ledger, 0, range(5))
    child = os.fork()
    if not child:
        with ledger.pinned():
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert len(list(ledger.folder.glob("_pins/*"))) == 2    # folder and lock
    with ledger.pinned() as (paths, _):
        put(ledger, 1, range(5))
        assert len(list(ledger.folder.glob("_pins/*"))) == 2
        assert rows(paths) == list(range(5))


def test_an_archive_that_cannot_be_written_is_read_in_place(ledger, monkeypatch):
    put(ledger, 0, range(5))

    def refused(*_, **__):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)    # root has every permission, so a test cannot cause this
    with ledger.pinned() as (paths, _):
        assert [Path(path).parent.parent for path in paths] == [ledger.folder]
        assert rows(paths) == list(range(5))
    assert list(ledger.folder.glob("_pins/*")) == []
