"""Mutations that leave files valid on the surface: checksums are renewed, so decoders see the changed contents."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable

from tests.compiled.wire import checksum

Files = dict[str, bytes]    # by name
NUMBERS = [0, 1, 2, 3, 7, 8, 24, 64, 4095, 4096, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**53, 2**61, 2**62 - 1, 2**62,
           2**63 - 1, 2**63, 2**64 - 1, 10**18]
HEAD = 64
MAGIC = b"nqFR"


def number(rng: random.Random, bits: int, near: int = 0) -> int:
    """An extreme number of this many bits, or one near it, without its sign."""
    found = near + rng.choice([-8, -1, 1, 2, 8, 1000]) if rng.random() < 0.3 else rng.choice(NUMBERS)
    return found & (1 << bits) - 1


def change_number(rng: random.Random, data: bytearray, at: int, size: int) -> None:
    near = int.from_bytes(data[at:at + size], "big")
    data[at:at + size] = number(rng, 8 * size, near).to_bytes(size, "big")


def seal(data: bytearray) -> None:
    """Renews the checksum in the last 4 bytes."""
    data[-4:] = checksum(bytes(data[:-4])).to_bytes(4, "big")


# ---------------------------------------------------------------------- frames

def frames(data: bytes, start: int) -> list[int]:
    """Where frames begin, whether sound or not."""
    found, at = [], start
    while at + HEAD <= len(data):
        if data[at:at + 4] == MAGIC:
            found.append(at)
            at += (HEAD + int.from_bytes(data[at + 8:at + 12], "big") + 7) // 8 * 8
        else:
            at += 8
    return found


def seal_frame(data: bytearray, at: int, salt: int) -> None:
    """Renews both checksums."""
    length = int.from_bytes(data[at + 8:at + 12], "big")
    if at + HEAD + length <= len(data):
        struct.pack_into(">I", data, at + 12, checksum(bytes(data[at + HEAD:at + HEAD + length])))
    struct.pack_into(">I", data, at + 4, checksum(struct.pack(">QQ", salt, at) + bytes(data[at + 8:at + HEAD])))


def put_frame(data: bytearray, at: int, payload: bytes) -> None:
    """Gives a frame another payload, and moves what follows; sealing all later frames is up to the caller."""
    length = int.from_bytes(data[at + 8:at + 12], "big")
    end = at + (HEAD + length + 7) // 8 * 8
    struct.pack_into(">I", data, at + 8, len(payload))
    data[at + HEAD:end] = payload + bytes(-(HEAD + len(payload)) % 8)


def items(rng: random.Random, count: int, honest: bool) -> bytes:
    """Sizes with bytes after them."""
    bodies = [rng.randbytes(rng.choice([0, 1, 5, 40])) for _ in range(count)]
    return b"".join(struct.pack(">I", len(body) if honest or rng.random() < 0.8 else number(rng, 32, len(body))) + body
                    for body in bodies)


ORIGIN = {"topic": "t", "channel": "c", "node": "n", "node_id": 1, "id": "0000000000000001", "timestamp": 10**18, "attempts": 2,
          "reason": "max_attempts", "client": {"client_id": "i", "hostname": "h", "remote_address": "127.0.0.1:1"}}


def origin(rng: random.Random) -> bytes:
    """Of a dead letter, in JSON."""
    text = json.dumps(change_json(rng, ORIGIN) if rng.random() < 0.6 else ORIGIN).encode()
    return text if rng.random() < 0.7 else change_file(rng, text)


def rebuild(rng: random.Random, data: bytearray, at: int) -> None:
    """Another payload: records, delays, ids and origins, with counts that fit them or nearly do."""
    honest = rng.random() < 0.4
    count = rng.choice([0, 1, 2, 3, 9])
    delays, ids, origins = rng.choice([0, 0, 1, count, count + 1]), rng.choice([0, 0, 1, count, count + 1]), rng.random() < 0.5
    tables = b"".join(struct.pack(">IQI", index if honest else number(rng, 32, index), number(rng, 62 if honest else 64), 1000)
                      for index in range(delays))
    tail = b"".join(struct.pack(">I", len(text)) + text for text in (origin(rng) for _ in range(count))) if origins else b""
    payload = items(rng, count, honest) + tables + rng.randbytes(16 * ids) + tail
    struct.pack_into(">HHIHHI", data, at + 16, 2 * bool(delays) + 4 * bool(tail) + 8 * bool(ids) if honest else rng.randrange(16), 0,
                     *[value if honest or rng.random() < 0.8 else number(rng, bits, value)
                       for value, bits in ((count, 32), (delays, 16), (ids, 16), (len(tail), 32))])
    put_frame(data, at, payload)


def operations(rng: random.Random) -> bytes:
    """Of a journal of channels: kinds, names and numbers of all sorts."""
    found = []
    for _ in range(rng.choice([1, 2, 5, 30])):
        kind, small = rng.choice([1, 2, 3, 4, 5, 6, 7, 7, 0, 8, 255]), rng.randrange(150)
        name = rng.choice([b"c", b"d", b"other", b"(settled)", b"c#ephemeral", b"../x", b"\xff\0", b"x" * 64, b"", b"x" * 72])
        offset = small if rng.random() < 0.6 else number(rng, 64, small)
        value = small + rng.randrange(1, 50) if rng.random() < 0.6 else number(rng, 64, offset)
        size = len(name) if rng.random() < 0.9 else rng.randrange(256)
        found.append(struct.pack(">BBHIQQ", kind, size, rng.choice([0, 1, 65535]),
                                 rng.choice([0, 1, 2, 3, 2**31 - 1, 2**31, 2**32 - 1]), offset, value))
        if kind == 5:
            found.append(name.ljust(72, b"\0"))
    return b"".join(found)


def change_frames(rng: random.Random, data: bytearray, start: int, salt: int, payload: Callable[[], bytes] | None) -> None:
    """payload: makes the single record of a frame, for journals; None: a segment."""
    for _ in range(rng.choice([1, 1, 2, 5])):
        places = frames(data, start)
        if not places:
            return
        at, kind = rng.choice(places), rng.randrange(7)
        if kind < 2 and payload is None:
            rebuild(rng, data, at)
        elif kind < 2 and payload is not None:
            made = payload()
            put_frame(data, at, struct.pack(">I", len(made)) + made)
        elif kind < 4:
            offset, size = rng.choice([(8, 4), (16, 2), (20, 4), (24, 2), (26, 2), (28, 4), (32, 8), (40, 8), (48, 8), (56, 8)])
            change_number(rng, data, at + offset, size)
        elif kind == 4:     # twice, or before another one
            end = at + (HEAD + int.from_bytes(data[at + 8:at + 12], "big") + 7) // 8 * 8
            other = rng.choice(places)
            data[other:other] = data[at:end]
        elif kind == 5 and len(data) > at + HEAD:
            change_number(rng, data, rng.randrange(at + HEAD, len(data)), rng.choice([1, 4]))
        else:
            end = at + (HEAD + int.from_bytes(data[at + 8:at + 12], "big") + 7) // 8 * 8
            del data[at:end]
    for at in frames(data, start):
        seal_frame(data, at, salt)


# ---------------------------------------------------------------------- files

def change_file(rng: random.Random, data: bytes) -> bytes:
    """Bytes of any file."""
    made, kind = bytearray(data), rng.randrange(6)
    if kind == 0:
        return bytes(made[:rng.randrange(len(made) + 1)])
    if kind == 1:
        return bytes(made) + rng.choice([b"\0" * rng.randrange(1, 9000), rng.randbytes(rng.randrange(1, 300)), bytes(made)])
    if kind == 2 and made:
        at = rng.randrange(len(made))
        made[at:at + rng.randrange(1, 100)] = rng.choice([b"", bytes(64), rng.randbytes(8)])
    for _ in range(rng.choice([1, 3])):
        if made:
            made[rng.randrange(len(made))] = rng.randrange(256)
    return bytes(made)


TEXTS = ["", "t", "c", "t:c", "\u20ac", "x" * 100, "../x", "\0", "0123456789abcdef", "\U0001f600"]


def change_json(rng: random.Random, value: object, depth: int = 0) -> object:
    """Replaces, removes or duplicates some value of a document."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        made = dict(value)
        key = rng.choice(list(made))
        if rng.random() < 0.1:
            del made[key]
        elif rng.random() < 0.1:
            made[rng.choice(TEXTS)] = made.pop(key)
        else:
            made[key] = change_json(rng, made[key], depth + 1)
        return made
    if isinstance(value, list) and value and rng.random() < 0.8:
        items = list(value)
        at = rng.randrange(len(items))
        if rng.random() < 0.2:
            return [*items, items[at]]
        items[at] = change_json(rng, items[at], depth + 1)
        return items
    deep: object = []
    for _ in range(rng.choice([1, 1, 1, 400])):
        deep = [deep]
    return rng.choice([None, True, -1, 1.5, -2**63, *NUMBERS, *TEXTS, {}, deep, {"name": value}, float("inf")])
