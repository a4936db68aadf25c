"""Snappy and deflate, written from their specifications."""

from __future__ import annotations

import re
import struct
import zlib

from kit.base import Failure


def _crc32c_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ 0x82F63B78 if byte & 1 else byte >> 1
        table.append(byte)
    return table


CRC32C = _crc32c_table()


def masked_crc(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC32C[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out + bytes([number]))


def snappy_block(data: bytes) -> bytes:
    """A valid block that shortens runs of one byte and copies the rest."""
    out = bytearray(varint(len(data)))
    for run in re.finditer(rb"(.)\1{7,}|(?:(?!(.)\2{7}).){1,60}", data, re.S):
        piece = run[0]
        head = piece[:1] if run[1] else piece
        out += bytes([len(head) - 1 << 2]) + head
        left = len(piece) - len(head)
        while left > 0:
            out += struct.pack("<BH", min(left, 64) - 1 << 2 | 2, 1)
            left -= 64
    return bytes(out)


def snappy_unblock(block: bytes) -> bytes:
    size = shift = pos = 0
    while True:
        byte, pos = block[pos], pos + 1
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    out = bytearray()
    while pos < len(block):
        tag, pos = block[pos], pos + 1
        kind = tag & 3
        if kind == 0:
            length = tag >> 2
            if length >= 60:
                extra = length - 59
                length = int.from_bytes(block[pos : pos + extra], "little")
                pos += extra
            out += block[pos : pos + length + 1]
            pos += length + 1
            continue
        if kind == 1:
            length, offset = (tag >> 2 & 7) + 4, (tag >> 5) << 8 | block[pos]
            pos += 1
        else:
            width = 2 if kind == 2 else 4
            length, offset = (tag >> 2) + 1, int.from_bytes(block[pos : pos + width], "little")
            pos += width
        if not 0 < offset <= len(out):
            raise Failure("snappy: copy from before the start")
        for _ in range(length):
            out.append(out[-offset])
    if len(out) != size:
        raise Failure(f"snappy: block of {len(out)} bytes announced as {size}")
    return bytes(out)


class SnappyCodec:
    IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"

    def __init__(self) -> None:
        self.greeting = self.IDENTIFIER
        self.pending = bytearray()

    def encode(self, data: bytes) -> bytes:
        out, self.greeting = bytearray(self.greeting), b""
        for start in range(0, len(data), 65536):
            piece = data[start : start + 65536]
            packed = snappy_block(piece)
            kind, inner = (0, packed) if len(packed) < len(piece) else (1, piece)
            out += struct.pack("<I", len(inner) + 4 << 8 | kind)
            out += struct.pack("<I", masked_crc(piece)) + inner
        return bytes(out)

    def decode(self, data: bytes) -> bytes:
        self.pending += data
        out = bytearray()
        while len(self.pending) >= 4:
            head = int.from_bytes(self.pending[:4], "little")
            kind, size = head & 0xFF, head >> 8
            if len(self.pending) < 4 + size:
                break
            chunk = bytes(self.pending[4 : 4 + size])
            del self.pending[: 4 + size]
            if kind in (0, 1):
                piece = snappy_unblock(chunk[4:]) if kind == 0 else chunk[4:]
                if int.from_bytes(chunk[:4], "little") != masked_crc(piece):
                    raise Failure("snappy: checksum does not match")
                out += piece
            elif kind < 0x80:
                raise Failure(f"snappy: unknown chunk type {kind:#x}")
        return bytes(out)


class DeflateCodec:
    def __init__(self) -> None:
        self.packer = zlib.compressobj(6, zlib.DEFLATED, -15)
        self.unpacker = zlib.decompressobj(-15)

    def encode(self, data: bytes) -> bytes:
        return self.packer.compress(data) + self.packer.flush(zlib.Z_SYNC_FLUSH)

    def decode(self, data: bytes) -> bytes:
        try:
            return self.unpacker.decompress(data)
        except zlib.error as broken:
            raise Failure(f"deflate: {broken}") from None
