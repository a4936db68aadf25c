"""Journals of cursors, read and compacted (nsqc.store.log.journal, nsqc.store.log.journal)."""

import random
import tempfile
from pathlib import Path
from zlib import crc32

from nsqc.store.log.manager import read_progress
from perf.micro import timing
from perf.micro.timing import Part, Row, Size
from tests.compiled.logs import compact_folder
from tests.store.log.journals import ADVANCE, FIN, NAME, REQ, RESET, Frame, journal_path, write_journal

TITLE = "journal: nanoseconds for a message"
EACH = 200  # messages per frame


def bench(size: Size) -> list[Row]:
    """Consumed in order; finished in random order with every second one unfinished; deferred; and the snapshot of
    that."""
    count = size.of(500_000) // EACH * EACH or EACH
    new = [(1, [(RESET, 0), (NAME, "c")])]
    mixed = list(range(0, count, 2))
    random.Random(1).shuffle(mixed)
    in_order = [[(1, [(ADVANCE, at + EACH), (FIN, at, EACH)])] for at in range(0, count, EACH)]
    scattered = [[(1, [(ADVANCE, count)])]]
    scattered += [[(1, [(FIN, offset, 1) for offset in mixed[at:at + EACH]])] for at in range(0, len(mixed), EACH)]
    deferred = [[(1, [(ADVANCE, at + EACH), *((REQ, at + offset, 1, 10**18) for offset in range(EACH))])]
                for at in range(0, count, EACH)]
    data = random.Random(2).randbytes(count)

    with tempfile.TemporaryDirectory() as place:
        def folder(name: str, frames: list[Frame]) -> Path:
            path = Path(place) / name
            path.mkdir()
            write_journal(path, new, *frames)
            return path

        folders = {name: folder(name, frames) for name, frames in (
            ("in order", in_order), ("no order", scattered), ("deferred", deferred))}

        def load(name: str):
            return lambda: lambda: read_progress(str(folders[name]))

        def compact(name: str):
            def make():
                path = folders[name]
                journal = journal_path(path).read_bytes()

                def run():
                    for old in path.iterdir():
                        old.unlink()
                    journal_path(path).write_bytes(journal)
                    compact_folder(str(path))
                    journal_path(path).write_bytes(journal)
                return run
            return make

        checksum = Part("crc32 of a byte", lambda: lambda: crc32(data), count)
        return [
            timing.compare(Part("replay, in order", load("in order"), count), checksum, size),
            timing.compare(Part("replay, finished in no order", load("no order"), len(mixed)), checksum, size),
            timing.compare(Part("replay, deferred", load("deferred"), count), checksum, size),
            timing.compare(Part("compact, every second unfinished", compact("no order"), len(mixed)), checksum, size),
            timing.compare(Part("compact, deferred", compact("deferred"), count), checksum, size),
        ]


if __name__ == "__main__":
    timing.main(TITLE, bench)
