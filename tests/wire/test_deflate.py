"""Raw deflate in bounded pieces."""

import random
import zlib

import pytest

from nsqc.wire.codecs import CodecError, Deflate
from tests.wire.draining import drain


def raw(data: bytes, level: int = 6, flush: int = zlib.Z_SYNC_FLUSH) -> bytes:
    packer = zlib.compressobj(level, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush(flush)


@pytest.mark.parametrize("level", range(1, 10))
def test_what_we_write_can_be_read_after_each_flush(level):
    writer, reader = Deflate(level), zlib.decompressobj(-15)
    for data in (b"a", b"hello " * 50_000, random.Random(level).randbytes(100_000)):
        assert reader.decompress(writer.pack(data)) == data


def netty(inflater, read: bytes) -> list[bytes]:
    """The output of netty's JdkZlibDecoder for one read: buffers of twice its size, until the data is used up."""
    pieces, room = [], 2 * len(read)
    while read:
        pieces.append(inflater.decompress(read, room))
        read = inflater.unconsumed_tail
    return [piece for piece in pieces if piece]


SMALL = {
    "a first message": b"\0\0\0\x32\0\0\0\2\x18\x7a\0\0\0\0\0\0\0\1" + b"0a1b2c3d4e5f0000" + b"x" * 20,
    "zeros": bytes(1014),
    "one byte": b"a",
    "lines": b"hello, hello, " * 70,
    "noise": random.Random(3).randbytes(1014),
}


@pytest.mark.parametrize("level", [1, 6, 9])
@pytest.mark.parametrize("data", SMALL.values(), ids=SMALL.keys())
def test_a_small_flush_comes_whole_from_one_read_of_netty(level, data):
    """JavaNSQClient takes the result of one read for a frame, and drops the connection if it is half of one."""
    codec, inflater = Deflate(level), zlib.decompressobj(-15)
    for _ in range(3):
        packed = codec.pack(data)
        assert netty(inflater, packed) == [data]
        assert len(packed) <= 1024, "netty's first read"
    # zlib alone does not do so.
    assert len(netty(zlib.decompressobj(-15), raw(bytes(1014)))) > 1


@pytest.mark.parametrize("level", range(1, 10))
def test_small_and_large_flushes_one_after_another(level):
    rng = random.Random(level)
    words = [rng.randbytes(rng.randint(3, 40)) for _ in range(300)]
    codec, inflater = Deflate(level), zlib.decompressobj(-15)
    for _ in range(200):
        kind = rng.random()
        if kind < 0.7:
            sizes = [rng.randint(1, 60) for _ in range(rng.randint(1, 400))]
        elif kind < 0.8:
            sizes = [rng.choice([1013, 1014, 1015, 1016])]
        else:
            sizes = [rng.randint(1015, 100_000)]
        for size in sizes:
            data = b"".join(rng.choices(words, k=size // 3 + 1))[:size]
            assert inflater.decompress(codec.pack(data)) == data


@pytest.mark.parametrize("between", [0, 1, 100, 1000])
def test_large_flushes_refer_to_what_came_before_them(between):
    rng = random.Random(1)
    codec, inflater = Deflate(6), zlib.decompressobj(-15)

    def sent(data: bytes) -> int:
        packed = codec.pack(data)
        assert inflater.decompress(packed) == data
        return len(packed)

    data = rng.randbytes(3000)
    assert sent(data) > 3000
    for _ in range(between):
        sent(rng.randbytes(20))
    assert sent(data) < 100
    # Also for stored blocks.
    data = rng.randbytes(2000)
    sent(data[:1000])
    sent(data[1000:])
    for _ in range(between):
        sent(rng.randbytes(20))
    assert sent(data) < 100


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
