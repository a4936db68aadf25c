"""Raw deflate in bounded pieces."""

import random
import zlib

import pytest

from nsqc.wire.codec import CodecError
from nsqc.wire.deflate import Deflate


def raw(data: bytes, level: int = 6, flush: int = zlib.Z_SYNC_FLUSH) -> bytes:
    packer = zlib.compressobj(level, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush(flush)


def drain(codec: Deflate) -> bytes:
    found = b""
    while piece := codec.get():
        assert len(piece) <= 65536
        found += piece
    return found


@pytest.mark.parametrize("level", range(1, 10))
def test_what_we_write_can_be_read_after_each_flush(level):
    writer, reader = Deflate(level), zlib.decompressobj(-15)
    for data in (b"a", b"hello " * 50_000, random.Random(level).randbytes(100_000)):
        assert reader.decompress(writer.pack(data)) == data


def test_what_others_write_is_read_byte_by_byte():
    data = b"abcdefg" * 30_000
    codec, found = Deflate(6), b""
    for byte in raw(data):
        codec.put(bytes([byte]))
        found += drain(codec)
    assert found == data
    assert not codec.truncated


def test_a_bomb_comes_in_pieces_and_its_input_stays_small():
    bomb = raw(bytes(200 * 1024 * 1024), 9)
    assert len(bomb) < 250_000
    codec = Deflate(6)
    codec.put(bomb)
    count = 0
    while piece := codec.get():
        assert len(piece) <= 65536
        assert codec.waiting <= len(bomb)
        count += len(piece)
    assert count == 200 * 1024 * 1024


@pytest.mark.parametrize("size", [65535, 65536, 65537, 131072])
def test_sizes_around_a_piece(size):
    codec = Deflate(6)
    codec.put(raw(bytes(size)))
    assert drain(codec) == bytes(size)
    codec.put(b"")
    assert codec.get() == b""


@pytest.mark.parametrize("data", [b"\xff" * 16, b"PUB t\n\x00\x00\x00\x01x", b"\x00\x05\x00\x00\x00hello"])
def test_refused(data):
    codec = Deflate(6)
    codec.put(data)
    with pytest.raises(CodecError, match="deflate"):
        drain(codec)


def test_the_end_of_a_stream_shows():
    codec = Deflate(6)
    codec.put(raw(bytes(200_000), 6, zlib.Z_FINISH) + b"more")
    assert drain(codec) == bytes(200_000)
    assert codec.ended
    assert not codec.truncated


def test_truncation_shows():
    codec = Deflate(6)
    assert not codec.truncated
    data = raw(b"hello hello hello")
    codec.put(data[:-2])
    assert drain(codec) == b"hello hello hello"
    assert codec.truncated
    codec.put(data[-2:])
    assert drain(codec) == b""
    assert not codec.truncated
