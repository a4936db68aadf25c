"""The first look at a folder: it says what the careful way says, or leaves that to it; and which files it believes."""

import os
import shutil
import threading

import pytest

from nsqc.store.log import recovery
from nsqc.store.log.look import Looks
from nsqc.store.log.progress import read_progress
from tests.store.log.journals import ADVANCE, NAME, RESET, frame, head, section, write_journal
from tests.store.log.segments import due_entry, write_segment


class Silent:
    """A log that keeps its lines."""

    def __init__(self):
        self.lines = []

    def info(self, text, *arguments):
        self.lines.append(text % arguments if arguments else text)

    warn = error = info


@pytest.fixture
def folder(tmp_path):
    """Two segments, deferred messages, a channel."""
    made = tmp_path / "topic.log"
    write_segment(made, 0, 40, more=[3, 4, 20])
    write_segment(made, 40, 20)
    (made / f"{40:020}.due").write_bytes(due_entry(41, 5))
    (made / "id.00000000000000ff").touch()
    write_journal(made, 1, frame(section(1, [(RESET, 0), (NAME, "c"), (ADVANCE, 50)])))
    return made


def looked(folder):
    """As the first look has it; None: it has left it to others."""
    seen = Looks([os.fsencode(folder)]).take(os.fsencode(folder))
    return None if seen is None else (seen[0], [recovery.SegmentFound(*segment) for segment in seen[1]],
                                      seen[2].channels, seen[2].reached, seen[2].numbers, seen[2].strays)


def mended(folder):
    """The same from the careful way."""
    log = Silent()
    found = recovery.mend_folder(str(folder), False, log)
    earlier = found.earlier
    return (found.id, found.segments, earlier.channels, earlier.reached, earlier.numbers, earlier.strays), log.lines


@pytest.mark.parametrize("power_failed", [False, True])
def test_both_ways_say_the_same(folder, power_failed):
    for segments in (2, 1, 0):
        seen, (careful, lines) = looked(folder), mended(folder)
        assert seen == careful and len(seen[1]) == segments
        assert all("are gone" in line for line in lines)      # the channel has been further
        first = recovery.open_folder(str(folder), power_failed, Silent(), Looks([os.fsencode(folder)]))
        again = recovery.mend_folder(str(folder), power_failed, Silent())
        assert first._replace(earlier=None) == again._replace(earlier=None)
        for path in folder.glob(f"{40 * (segments - 1):020}.*"):
            path.unlink()


def test_everything_that_is_not_as_it_was_written_is_left_to_the_careful_way(folder, tmp_path):
    def check(change):
        copy = tmp_path / "copy.log"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy)
        change(copy)
        assert looked(copy) is None

    names = [f"{first:020}.{kind}" for first in (0, 40) for kind in ("dat", "idx")]
    for name in names:
        check(lambda copy, name=name: (copy / name).unlink())
        check(lambda copy, name=name: os.truncate(copy / name, (copy / name).stat().st_size - 1))
        check(lambda copy, name=name: os.truncate(copy / name, 0))
        check(lambda copy, name=name: (copy / name).write_bytes((copy / name).read_bytes() + b"\0"))
        check(lambda copy, name=name: (copy / name).rename(copy / f"{20:020}{name[20:]}"))
        check(lambda copy, name=name: ((copy / name).rename(copy / "elsewhere"), (copy / name).symlink_to("elsewhere")))
    for at in (0, 9, 17, -1, -5, -16):         # head and last entry of the index; and the last record
        for name in names:
            if name.endswith(".idx") or at < 0:
                check(lambda copy, name=name, at=at: flip(copy / name, at))
    check(lambda copy: write_segment(copy, 59, 5))         # reaches into another
    check(lambda copy: os.mkfifo(copy / f"{90:020}.dat"))
    check(lambda copy: shutil.rmtree(copy))


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_threads_and_the_one_who_waits_share_the_folders(folder, tmp_path):
    folders = []
    for number in range(300):
        copy = tmp_path / f"t{number}.log"
        shutil.copytree(folder, copy)
        folders.append(os.fsencode(copy))
    looks = Looks(folders)
    threads = [threading.Thread(target=looks.run) for _ in range(3)]
    for thread in threads:
        thread.start()
    taken = [looks.take(name) for name in (*folders[150:], *folders[:150])]
    for thread in threads:
        thread.join()
    assert all(seen is not None and seen[0] == 255 and len(seen[1]) == 2 for seen in taken)
    with pytest.raises(KeyError):
        looks.take(folders[0])


@pytest.mark.parametrize("others, strays", [
    (["cursors.000066.journal"], ["cursors.000066.journal"]),
    (["cursors.000065.journal"], []),
    (["cursors.2147483647.journal", "cursors.2147483647.snapshot"],
     ["cursors.2147483647.snapshot", "cursors.2147483647.journal"]),
    (["cursors.999999999999999999.snapshot.tmp"], ["cursors.999999999999999999.snapshot.tmp"]),
    (["cursors.9999999999999999999.journal", "cursors.1.journal", "cursors.0000070.journal"], []),
    ([f"cursors.{number:06}.journal" for number in range(200, 100_000, 100)],
     [f"cursors.{number:06}.journal" for number in range(200, 100_000, 100)]),
])
def test_journals_that_are_not_of_this_log(folder, others, strays):
    for name in others:
        (folder / name).write_bytes(b"x")
    progress = read_progress(str(folder))
    assert [file.name for file in progress.strays] == strays
    assert [channel.name for channel in progress.channels] == ["c"]
    assert looked(folder)[-1] == strays


def test_a_journal_far_behind_that_begins_as_one_counts(folder):
    """As after a daemon that believed a name."""
    write_journal(folder, 5000, frame(section(2, [(RESET, 0), (NAME, "d")])))
    (folder / "cursors.2147483646.journal").write_bytes(head(2**31 - 2))       # no daemon can have come to that
    progress = read_progress(str(folder))
    assert [channel.name for channel in progress.channels] == ["c", "d"]
    assert [file.number for file in progress.strays] == [2**31 - 2]
