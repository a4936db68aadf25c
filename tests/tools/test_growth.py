"""Files of to-file that grow past the page cache, interleaved with writes through it."""

import errno
import fcntl
import os
import random
import tempfile
import zlib
from pathlib import Path

import pytest

from nsqc.tools.lines import Piece
from nsqc.tools.tofile import archive as module
from nsqc.tools.tofile.archive import Archive, Growth
from tests.tools.test_archive import batch, rules

BLOCK = 4096


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Past the page cache from two blocks on, so that little data takes all paths."""
    monkeypatch.setattr(module, "LEAST_DIRECT", 2 * BLOCK)


@pytest.fixture
def direct(monkeypatch):
    """The size of each write past the page cache."""
    counts = []
    real = Growth._write_direct

    def write(self, blocks):
        counts.append(real(self, blocks))
        return counts[-1]

    monkeypatch.setattr(Growth, "_write_direct", write)
    return counts


def opened(folder, compression="", room=16 * BLOCK) -> Archive:
    return Archive("t", rules(folder, compression), lambda level, text: None, Piece(room))


def bodies_of(chance: random.Random) -> list[bytes]:
    """Some messages, a few large ones and newlines among them."""
    most = chance.choice((10, 300, 5000, 70_000))
    return [chance.randbytes(1 + chance.randrange(most)) for _ in range(chance.randrange(1, 40))]


@pytest.mark.parametrize("parent", [None, "/dev/shm"])
@pytest.mark.parametrize("seed", range(3))
def test_every_byte_is_in_its_place_after_any_sync(tmp_path, direct, parent, seed):
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(dir=parent or tmp_path) as folder:
        path, expected = Path(folder, "f"), b""
        for _ in range(8):      # each is a start of the tool
            archive = opened(folder, room=chance.choice((3, 16, 64)) * BLOCK)
            for _ in range(chance.randrange(1, 12)):
                batches = [bodies_of(chance) for _ in range(chance.randrange(1, 4))]
                epoch = archive.store(batch(*bodies) for bodies in batches)
                expected += b"".join(body + b"\n" for bodies in batches for body in bodies)
                assert path.stat().st_size == len(expected)
                archive.sync(epoch)
            archive.close()
            assert path.read_bytes() == expected
    assert len(direct) > 10 and all(count % BLOCK == 0 for count in direct)


@pytest.mark.parametrize("stage", ["flags", "write"])
def test_a_file_system_that_writes_only_through_the_page_cache(tmp_path, monkeypatch, stage):
    real, tries = fcntl.fcntl, []

    def refusing(descriptor, command, flags):
        if flags & os.O_DIRECT:
            tries.append(flags)
            if stage == "flags":
                raise OSError(errno.EINVAL, "Invalid argument")
        return real(descriptor, command, flags)

    def write(descriptor, data):
        if real(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return write.real(descriptor, data)

    write.real = os.write
    monkeypatch.setattr(module.fcntl, "fcntl", refusing)
    monkeypatch.setattr(module.os, "write", write)
    archive, bodies = opened(tmp_path), [b"%d" % number * 900 for number in range(100)]
    for _ in range(3):
        archive.sync(archive.store([batch(*bodies)]))
    archive.close()
    assert (tmp_path / "f").read_bytes() == b"".join(body + b"\n" for body in bodies) * 3
    assert len(tries) == 1      # not tried again


@pytest.mark.parametrize("then", [0, errno.ENOSPC, errno.EIO])
def test_a_write_past_the_page_cache_that_is_cut_short(tmp_path, monkeypatch, then):
    """Blocks that were written are kept if the rest follows, and cut off if it does not."""
    archive = opened(tmp_path)
    archive.sync(archive.store([batch(b"kept")]))
    real, cut = os.write, []

    def write(descriptor, data):
        if len(data) >= 2 * BLOCK and not cut:
            cut.append(True)
            return real(descriptor, data[:BLOCK])
        if cut and then:
            raise OSError(then, os.strerror(then))
        return real(descriptor, data)

    monkeypatch.setattr(module.os, "write", write)
    bodies = [b"x" * 1000] * 30
    if then:
        with pytest.raises(OSError, match=r"No space|Input/output"):
            archive.store([batch(*bodies)])
        assert (tmp_path / "f").read_bytes() == b"kept\n"
        monkeypatch.setattr(module.os, "write", real)
    archive.sync(archive.store([batch(*bodies)]))
    archive.close()
    assert cut and (tmp_path / "f").read_bytes() == b"kept\n" + b"".join(body + b"\n" for body in bodies)


def test_two_that_append_to_one_file_overwrite_nothing(tmp_path, direct):
    """The end of the file is where neither of them has left it."""
    both = [opened(tmp_path), opened(tmp_path)]
    bodies = [b"%05d" % number * 100 for number in range(400)]
    for at in range(0, len(bodies), 40):
        for one in both:
            one.sync(one.store([batch(*bodies[at:at + 40], b"odd")]))
    for one in both:
        one.close()
    found = (tmp_path / "f").read_bytes().split(b"\n")
    assert direct and sorted(found) == sorted([*bodies, *bodies, *[b"odd"] * 20, b""])


@pytest.mark.parametrize("compression", ["", "gzip"])
def test_messages_larger_than_a_piece(tmp_path, direct, compression):
    chance = random.Random(1)
    archive = opened(tmp_path, compression, room=3 * BLOCK)
    bodies = [b"a", chance.randbytes(100_000), b"b" * (3 * BLOCK - 1), b"c" * (3 * BLOCK), b"d" * (2 * BLOCK), b"", b"e" * 50_000, b"f"]
    archive.sync(archive.store([batch(*bodies)]))
    archive.close()
    found = (tmp_path / "f").read_bytes()
    text = b""
    while compression and found:
        member = zlib.decompressobj(31)
        text, found = text + member.decompress(found), member.unused_data
        assert member.eof
    assert (text or found) == b"".join(body + b"\n" for body in bodies) and direct


def test_a_failure_of_one_archive_leaves_nothing_for_another_that_shares_its_piece(tmp_path, monkeypatch):
    piece = Piece(4 * BLOCK)
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    one, other = (Archive("t", rules(folder), lambda level, text: None, piece) for folder in folders)
    real = os.write
    monkeypatch.setattr(module.os, "write", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output error")))
    with pytest.raises(OSError, match="Input/output"):
        one.store([batch(b"lost")])
    monkeypatch.setattr(module.os, "write", real)
    other.sync(other.store([batch(b"stored")]))
    one.close()
    other.close()
    assert not (folders[0] / "f").exists() and (folders[1] / "f").read_bytes() == b"stored\n"


def test_a_piece_checks_its_rows_and_its_room():
    piece, some = Piece(10), batch(b"abc", b"de", b"fghi")
    assert piece.lines(some.bodies, some.offsets, 0, 3) == 2 and bytes(piece) == b"abc\nde\n"
    assert piece.put(b"12345") == 3 and len(piece) == 10 and piece.put(b"6") == 0
    piece.clear(4)
    assert bytes(piece) == b"" and piece.lines(some.bodies, some.offsets, 2, 3) == 3 and bytes(piece) == b"fghi\n"
    for start, stop in ((-1, 1), (2, 1), (0, 4)):
        with pytest.raises(IndexError):
            piece.lines(some.bodies, some.offsets, start, stop)
    with pytest.raises(IndexError):
        piece.clear(11)
    with pytest.raises(ValueError):
        Piece(0)
