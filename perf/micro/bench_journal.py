"""Journals of cursors, replayed and compacted (nsqc.store.log.replay, nsqc.store.log.compact)."""

import random
import tempfile
from pathlib import Path
from zlib import crc32

from nsqc.store.log.compact import compact_folder
from nsqc.store.log.progress import read_progress
from perf.micro import timing
from perf.micro.timing import Part, Row, Size
from tests.store.log.journals import ADVANCE, FIN, NAME, REQ, RESET, frame, section, write_journal

TITLE = "journal: nanoseconds for a message"
EACH = 200  # messages of a frame


def bench(size: Size) -> list[Row]:
    """Consumed in order; finished in no order with every second one left; deferred; and the snapshot of that."""
    count = size.of(500_000) // EACH * EACH or EACH
    new = frame(section(1, [(RESET, 0), (NAME, "c")]))
    mixed = list(range(0, count, 2))
    random.Random(1).shuffle(mixed)
    in_order = [frame(section(1, [(ADVANCE, at + EACH), (FIN, at, EACH)], at)) for at in range(0, count, EACH)]
    scattered = [frame(section(1, [(ADVANCE, count)]))]
    scattered += [frame(section(1, [(FIN, offset, 1) for offset in mixed[at:at + EACH]], mixed[at]))
                  for at in range(0, len(mixed), EACH)]
    deferred = [frame(section(1, [(ADVANCE, at + EACH), *((REQ, at + offset, 1, 10**18) for offset in range(EACH))]))
                for at in range(0, count, EACH)]
    data = random.Random(2).randbytes(count)

    with tempfile.TemporaryDirectory() as place:
        def folder(name: str, frames: list[bytes]) -> Path:
            path = Path(place) / name
            path.mkdir()
            write_journal(path, 1, new, *frames)
            return path

        folders = {name: folder(name, frames) for name, frames in (
            ("in order", in_order), ("no order", scattered), ("deferred", deferred))}

        def load(name: str):
            return lambda: lambda: read_progress(str(folders[name]))

        def compact(name: str):
            def make():
                path = folders[name]
                journal = (path / "cursors.000001.journal").read_bytes()
                for old in path.iterdir():
                    old.unlink()
                (path / "cursors.000001.journal").write_bytes(journal)
                (path / "cursors.000001.journal.copy").write_bytes(journal)

                def run():
                    compact_folder(str(path), 2)
                    (path / "cursors.000001.journal.copy").rename(path / "cursors.000001.journal")
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
