"""The files of to-file when the disk fails between a write and its sync, which no real disk does on request."""

import errno
import os
import struct
import zlib

import pytest

from nsqc.client.commands import Batch
from nsqc.client.frames import Inflow
from nsqc.tools.lines import Piece
from nsqc.tools.tofile import archive as module
from nsqc.tools.tofile.archive import PIECE_BYTES, Archive, Naming, Rules


def batch(*bodies: bytes) -> Batch:
    """Messages as they come from nsqd."""
    inflow = Inflow(1 << 20)
    for number, body in enumerate(bodies):
        content = struct.pack(">iqH", 2, number, 1) + b"%016d" % number + body
        inflow.feed(struct.pack(">i", len(content)) + content)
    return Batch(inflow.columns(), None)


@pytest.fixture
def archive(tmp_path):
    found = Archive("t", rules(tmp_path), lambda level, text: None, Piece(PIECE_BYTES))
    yield found
    found.close()


def rules(folder, compression: str = "") -> Rules:
    return Rules(str(folder), str(folder), Naming("f", "", "h", "", False), compression, 6, 0, 0.0, True)


class Failing:
    """A system call that fails once."""

    def __init__(self, real, number: int):
        self._real, self._number = real, number

    def __call__(self, *arguments):
        if self._number:
            number, self._number = self._number, 0
            raise OSError(number, os.strerror(number))
        return self._real(*arguments)


def test_what_a_sync_loses_is_cut_off_and_reported_lost_for_all_that_was_written_by_then(archive, tmp_path, monkeypatch):
    archive.sync(archive.store([batch(b"kept")]))
    first = archive.store([batch(b"lost")])
    monkeypatch.setattr(module.os, "fsync", Failing(os.fsync, errno.EIO))
    with pytest.raises(OSError, match="Input/output error"):
        archive.sync(first)
    with pytest.raises(OSError, match="Input/output error"):
        archive.sync(first)         # for another round, before the file is repaired
    second = archive.store([batch(b"next")])
    with pytest.raises(OSError, match="cut off"):
        archive.sync(first)         # and after it
    archive.sync(second)
    assert (tmp_path / "f").read_bytes() == b"kept\nnext\n"


def test_what_fails_to_be_written_takes_what_is_not_synced_yet_with_it(archive, tmp_path, monkeypatch):
    archive.sync(archive.store([batch(b"kept")]))
    written = archive.store([batch(b"not synced")])
    monkeypatch.setattr(module.os, "write", Failing(os.write, errno.ENOSPC))
    with pytest.raises(OSError, match="No space left"):
        archive.store([batch(b"not written")])
    assert (tmp_path / "f").read_bytes() == b"kept\n"
    with pytest.raises(OSError, match="cut off"):
        archive.sync(written)


def test_a_sync_that_fails_while_the_file_is_closed_is_not_forgotten(archive, tmp_path, monkeypatch):
    """fsync reports an error once: the sync of closing would succeed."""
    written = archive.store([batch(b"lost")])
    monkeypatch.setattr(module.os, "fsync", Failing(os.fsync, errno.EIO))
    with pytest.raises(OSError):
        archive.sync(written)
    archive.close()
    with pytest.raises(OSError, match="cut off"):
        archive.sync(written)
    assert not (tmp_path / "f").exists()


def test_messages_of_several_batches_are_compressed_together(tmp_path):
    archive = Archive("t", rules(tmp_path, "gzip"), lambda level, text: None, Piece(PIECE_BYTES))
    archive.sync(archive.store([batch(b"%d" % number) for number in range(100)]))
    archive.close()
    member = zlib.decompressobj(31)
    text = member.decompress((tmp_path / "f").read_bytes())
    assert text.split() == [b"%d" % number for number in range(100)] and member.eof and not member.unused_data


def test_more_texts_than_one_write_takes(archive, tmp_path):
    bodies = [b"%d" % number for number in range(3000)]
    archive.sync(archive.store(map(batch, bodies)))
    assert (tmp_path / "f").read_bytes().split() == bodies
