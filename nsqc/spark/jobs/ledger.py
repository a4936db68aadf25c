"""The Parquet files of an archive. Knows neither Spark nor nsqd.

    date=2026-11-21/NAME.parquet    rows, by the UTC day of their timestamp
    _ledger.json                    the valid files, and the last batch of each query
    _lock                           flock for changes of files and ledger
    _state/                         checkpoint and staging log of the archive job
    _tmp/JOB/, _tmp/JOB.lock        output of the running job of that name, and its flock
    _pins/ID/, _pins/ID.lock        hard links to a reader's files, and its flock

The ledger is authoritative and replaced atomically. A change moves new files in, replaces the ledger, and removes old
files: other files left in the date folders by a crash are removed when the next job starts. The folder must be on
a POSIX file system with hard links and flock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from nsqc.store.files import replace_file, sync_folder
from nsqc.wire.outside import Decoder, JSONError

VERSION = 1
NAME = re.compile(r"\d{12}-[0-9a-f]{8}(?:-\d+)?\.parquet", re.ASCII)     # names of an archive's own files
PATH = re.compile(r"date=[^/\0]+/[^/\0]+\.parquet", re.DOTALL)     # of a file in the archive
NO_LINKS = {errno.EPERM, errno.EACCES, errno.EROFS, errno.ENOTSUP, errno.EXDEV}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class LedgerError(RuntimeError):
    """The archive cannot be used like this; the text has the reason."""


class File(msgspec.Struct, frozen=True):
    """An entry of the ledger. first and last: lowest and highest timestamp, microseconds since 1970."""

    rows: int
    bytes: int
    first: int
    last: int


class State(msgspec.Struct):
    """The ledger. files: by path in the archive; batches: last batch by query."""

    version: int
    topic: str
    files: dict[str, File]
    batches: dict[str, int]

    @property
    def rows(self) -> int:
        """The rows of all files."""
        return sum(file.rows for file in self.files.values())


decode_state = Decoder(State).decode


class Ledger:
    """The archive in folder. With topic it is created if missing, and must belong to that topic.

    Raises LedgerError.
    """

    def __init__(self, folder: str | Path, topic: str | None = None):
        self.folder = Path(folder).absolute()
        self._path = self.folder / "_ledger.json"
        if topic is not None:
            self._make(topic)
        state = self.read()
        if topic is not None and state.topic != topic:
            raise LedgerError(f"{folder} is an archive of topic {state.topic}, not {topic}")

    def _make(self, topic: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._locked():
            if not self._path.exists():
                need_empty(self.folder)
                self._write(State(VERSION, topic, {}, {}))

    def read(self) -> State:
        """Reads the current ledger. Raises LedgerError."""
        try:
            state = decode_state(self._path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            raise LedgerError(f"{self.folder} is not an archive: it has no {self._path.name}") from None
        except (JSONError, OSError) as error:
            raise LedgerError(f"{self._path} is not readable: {error}") from None
        if state.version != VERSION:
            raise LedgerError(f"{self._path} has version {state.version}, this is {VERSION}")
        # They are linked and removed: other paths would lead out of the archive.
        if others := [name for name in state.files if not PATH.fullmatch(name)]:
            raise LedgerError(f"{self._path} is damaged: {others[0]!r:.200} is not the path of an archive's file")
        return state

    def _write(self, state: State) -> None:
        replace_file(self._path, msgspec.json.format(msgspec.json.encode(state), indent=1), mode=0o644)

    # ------------------------------------------------------------------ writing

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with opened(self.folder / "_lock") as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield

    @contextmanager
    def job(self, name: str) -> Iterator[Path]:
        """Creates an empty folder to write to, for the only job of this name. Raises LedgerError if it is already
        running."""
        (self.folder / "_tmp").mkdir(exist_ok=True)
        with opened(self.folder / "_tmp" / f"{name}.lock") as descriptor:
            if not is_taken(descriptor):
                raise LedgerError(f"another {name} of {self.folder} is running")
            space = self.folder / "_tmp" / name
            shutil.rmtree(space, ignore_errors=True)
            space.mkdir()
            self._settle()
            yield space
            shutil.rmtree(space, ignore_errors=True)

    def _settle(self) -> None:
        """Removes leftovers of crashes: files that are not in the ledger, pins of readers that have ended."""
        with self._locked():
            files = self.read().files
            for name in files:
                if not (self.folder / name).exists():
                    raise LedgerError(f"{self.folder / name} is missing, with {files[name].rows} rows")
            for path in self.folder.glob("date=*/*"):
                if (NAME.fullmatch(path.name) and str(path.relative_to(self.folder)) not in files
                        and not path.parent.is_symlink()):
                    path.unlink()
            for lock in self.folder.glob("_pins/*.lock"):
                with opened(lock) as descriptor:
                    if is_taken(descriptor):
                        shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
                        lock.unlink()

    def commit(self, new: dict[str, Path], old: Iterable[str] = (), batch: tuple[str, int] | None = None) -> bool:
        """Replaces old files with new ones (by path in the archive: each one's current path, on the same file system).

        batch: query and number; returns False, and does nothing, if that batch was committed before. Raises LedgerError
        if a name exists, OSError.
        """
        described = {name: footer(path) for name, path in new.items()}
        for path in new.values():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        with self._locked():
            state = self.read()
            if batch is not None and batch[1] <= state.batches.get(batch[0], -1):
                return False
            if existing := new.keys() & state.files.keys():
                raise LedgerError(f"{self.folder / min(existing)} already exists")
            self._move_in(new)
            old = list(old)
            for name in old:
                del state.files[name]
            state.files.update(described)
            if batch is not None:
                state.batches[batch[0]] = batch[1]
            self._write(state)
            for name in old:
                (self.folder / name).unlink()
        return True

    def _move_in(self, new: dict[str, Path]) -> None:
        folders = {(self.folder / name).parent for name in new}
        for folder in folders:
            folder.mkdir(exist_ok=True)
        for name, path in new.items():
            path.replace(self.folder / name)
        for folder in {*folders, self.folder} if folders else ():
            sync_folder(folder)

    # ------------------------------------------------------------------ reading

    @contextmanager
    def pinned(self, start: int | None = None, end: int | None = None) -> Iterator[tuple[list[str], int]]:
        """The current files with rows from start to end (microseconds since 1970): (paths, rows of these files). They
        remain for the block, even if compaction replaces them.

        If links cannot be created, for example in a folder without write permission, the files themselves are returned.
        Raises LedgerError, OSError.
        """
        place = self.folder / "_pins" / uuid.uuid4().hex
        with ExitStack() as stack:
            try:
                files = self._pin(place, stack, start, end)
            except OSError as error:
                if error.errno not in NO_LINKS:
                    raise
                place, files = self.folder, chosen(self.read(), start, end)
                for name, file in files.items():
                    self._check(name, file)
            yield [str(place / name) for name in files], sum(file.rows for file in files.values())

    def _check(self, name: str, file: File) -> None:
        """Raises LedgerError if a file is missing or was changed."""
        try:
            size = (self.folder / name).stat().st_size
        except FileNotFoundError:
            raise LedgerError(f"{self.folder / name} is missing, with {file.rows:,} rows") from None
        if size != file.bytes:
            raise LedgerError(f"{self.folder / name} has {size:,} bytes but had {file.bytes:,} when written: it "
                              "was changed since")

    def _pin(self, place: Path, stack: ExitStack, start: int | None, end: int | None) -> dict[str, File]:
        place.parent.mkdir(exist_ok=True)
        lock = place.with_suffix(".lock")
        with self._locked():
            stack.callback(lock.unlink, missing_ok=True)
            is_taken(stack.enter_context(opened(lock)))
            stack.callback(shutil.rmtree, place, ignore_errors=True)
            files = chosen(self.read(), start, end)
            for name, file in files.items():
                self._check(name, file)
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                os.link(self.folder / name, place / name)
        return files


def need_empty(folder: Path) -> None:
    """Raises LedgerError if a folder that is to become an archive is not empty."""
    names = [entry.name for entry in folder.iterdir() if entry.name != "_lock"] if folder.is_dir() else []
    if names:
        raise LedgerError(f"{folder} is not an archive, and not empty: it has {min(names)}")


def chosen(state: State, start: int | None, end: int | None) -> dict[str, File]:
    """The files that may have rows from start to end."""
    return {name: file for name, file in sorted(state.files.items())
            if (start is None or file.last >= start) and (end is None or file.first < end)}


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """A descriptor of the file at path, created if missing."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def is_taken(descriptor: int) -> bool:
    """Takes the flock of a file; False if another process holds it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def footer(path: Path) -> File:
    """The ledger entry for a Parquet file, from its footer. Raises OSError, pyarrow's ArrowInvalid."""
    import pyarrow.parquet as pq

    metadata = pq.read_metadata(path)
    column = metadata.schema.to_arrow_schema().get_field_index("timestamp")
    parts = [metadata.row_group(number).column(column).statistics for number in range(metadata.num_row_groups)]
    return File(metadata.num_rows, path.stat().st_size, min(micros(part.min) for part in parts),
                max(micros(part.max) for part in parts))


def micros(moment: datetime) -> int:
    """Microseconds since 1970 of an aware time, without rounding."""
    return (moment - EPOCH) // timedelta(microseconds=1)
