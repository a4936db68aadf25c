"""Snappy's framing format: writing, reading, refusing."""

import random
import struct

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqc.wire.codecs import CodecError, Snappy
from tests.compiled.wire import checksum, checksum_by_tables
from tests.wire.draining import drain

IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"


def chunk(kind: int, data: bytes) -> bytes:
    return bytes([kind]) + len(data).to_bytes(3, "little") + data


def masked(data: bytes) -> bytes:
    crc = checksum(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def plain(data: bytes) -> bytes:
    return chunk(1, masked(data) + data)


def packed(data: bytes) -> bytes:
    return chunk(0, masked(data) + bytes(cramjam.snappy.compress_raw(data)))


def read(data: bytes) -> bytes:
    codec = Snappy()
    codec.put(data)
    return drain(codec)


@pytest.mark.parametrize("data,crc", [(b"", 0), (b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA),
                                      (b"\xff" * 32, 0x62A8AB43), (bytes(range(32)), 0x46DD794E)])
def test_crc32c_of_the_standard(data, crc):
    assert checksum(data) == checksum_by_tables(data) == crc


@given(st.binary(max_size=100))
def test_crc32c_by_instruction_and_by_tables(data):
    assert checksum(data) == checksum_by_tables(data)


def test_crc32c_of_each_length():
    """Long data is divided into lanes: differently at each length."""
    data = memoryview(random.Random(1).randbytes(5000))
    for size in range(5000):
        part = data[size % 8:size]
        assert checksum(part) == checksum_by_tables(part), size


@pytest.mark.parametrize("size", [1, 7, 65535, 65536, 65537, 300_000])
@pytest.mark.parametrize("dense", [False, True])
def test_what_we_write_is_read_by_us_and_by_others(size, dense):
    data = random.Random(size).randbytes(size) if dense else (b"nsq topic channel " * (size // 18 + 1))[:size]
    written = Snappy().pack(data)
    assert written.startswith(IDENTIFIER)
    assert read(written) == data
    assert bytes(cramjam.snappy.decompress(written)) == data
    assert dense or size < 100 or len(written) < size // 4


def test_the_identifier_is_written_once():
    codec = Snappy()
    written = codec.pack(b"one") + codec.pack(b"two")
    assert written.count(IDENTIFIER) == 1
    assert read(written) == b"onetwo"


def test_what_others_write_is_read_byte_by_byte():
    data = b"abcdefg" * 30_000
    codec, found = Snappy(), b""
    written = bytes(cramjam.snappy.compress(data))
    for at in range(len(written)):
        codec.put(written[at:at + 1])
        found += drain(codec)
    assert found == data
    assert codec.waiting == 0


def test_padding_and_skippable_chunks_are_passed_over_and_not_kept():
    codec = Snappy()
    codec.put(IDENTIFIER + chunk(0xFE, bytes(1000)) + plain(b"a") + chunk(0x80, b"") + b"\xfd\xff\xff\xff")
    assert drain(codec) == b"a"
    for _ in range(255):
        codec.put(bytes(65536))
        assert drain(codec) == b""
        assert codec.waiting == 0
    codec.put(bytes(65535) + IDENTIFIER + packed(b"b"))
    assert drain(codec) == b"b"


def test_small_chunks_come_together_and_large_ones_one_by_one():
    codec = Snappy()
    codec.put(IDENTIFIER + plain(b"x") * 1000)
    assert codec.get() == b"x" * 1000
    codec.put(packed(bytes(65536)) + packed(bytes(65536)))
    assert [len(codec.get()) for _ in range(3)] == [65536, 65536, 0]


@pytest.mark.parametrize("data", [
    plain(b"x"),                                                    # no identifier
    chunk(0xFE, b""),
    b"PUB t\n\x00\x00\x00\x01x",
    chunk(0xFF, b"sNaPpy"),
    chunk(0xFF, b"sNaPp"),
    IDENTIFIER + chunk(0xFF, b"other!"),
    IDENTIFIER + chunk(0x02, b"x"),                                 # unskippable
    IDENTIFIER + chunk(0x7F, b""),
    IDENTIFIER + chunk(1, masked(b"x") + b"y"),                     # checksum
    IDENTIFIER + chunk(0, masked(b"x") + b"\x01\x00y"),
    IDENTIFIER + chunk(1, b"123"),                                  # too short, too long
    IDENTIFIER + chunk(1, masked(b"")),
    IDENTIFIER + b"\x01\x05\x00\x01",
    IDENTIFIER + b"\x00\xff\xff\xff",
    IDENTIFIER + chunk(0, masked(bytes(65537)) + bytes(cramjam.snappy.compress_raw(bytes(65537)))),
    IDENTIFIER + chunk(0, bytes(4) + b"\xff\xff\xff\xff\x0f" + bytes(9)),     # a block that says 4 GiB
    IDENTIFIER + chunk(0, bytes(4) + b"\xff\xff\xff\xff\xff\xff"),
    IDENTIFIER + chunk(0, bytes(4) + b"\x10\x00"),                  # block data that ends early
])
def test_refused(data):
    with pytest.raises(CodecError, match="snappy"):
        read(data)


def test_what_lies_before_damage_is_read_first():
    codec = Snappy()
    codec.put(IDENTIFIER + plain(b"good") + chunk(2, b""))
    assert codec.get() == b"good"
    with pytest.raises(CodecError):
        codec.get()


def test_random_damage_never_reads_wrong_bytes():
    data = b"message body 0123456789" * 40
    written = Snappy().pack(data)
    numbers = random.Random(5)
    for _ in range(3000):
        broken = bytearray(written)
        broken[numbers.randrange(len(broken))] ^= 1 << numbers.randrange(8)
        try:
            found = read(bytes(broken))
        except CodecError:
            continue
        assert found in (b"", data)


def test_truncation_shows():
    codec = Snappy()
    assert not codec.truncated
    codec.put(IDENTIFIER + plain(b"x")[:-1])
    assert drain(codec) == b""
    assert codec.truncated
    codec.put(b"x")
    assert drain(codec) == b"x"
    assert not codec.truncated
    codec.put(b"\xfe\x05\x00\x00abc")
    assert drain(codec) == b""
    assert codec.truncated
