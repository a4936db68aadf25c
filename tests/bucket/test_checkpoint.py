"""The map: commits fold into it, packing keeps every byte, and what it no longer names is known."""

import random

import msgspec
import pytest

from nsqc.bucket.checkpoint import FINAL_BYTES, Head, Map, decode_checkpoint, movable, pack
from nsqc.bucket.commit import (
    PIECE_BYTES,
    Commit,
    DamagedError,
    Frames,
    LogNews,
    commit_name,
    decode_commit,
    encode_commit,
)
from tests.bucket.support import MemoryStore

CLUSTER, WRITER = "c" * 32, "a" * 32


class Chain:
    """Commits of random logs, in a store; `content` is what every byte of a log should be."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.store = MemoryStore()
        self.whole = Map(Head(0, CLUSTER))
        self.content: dict[int, dict[int, bytes]] = {}      # log: offset: bytes of its message
        self.ends: dict[int, tuple[int, int, int]] = {}     # log: segment, position, offset
        self.written = 0                                    # bytes of data objects

    def commit(self, *logs: LogNews, payload: bytes = b"") -> None:
        number = self.whole.head.number + 1
        made = Commit(number, CLUSTER, 1, WRITER, self.whole.head.crc, 1, "host", is_claim=number == 1, logs=logs)
        data = encode_commit(made, [payload])
        self.store.create(commit_name(number), data)
        self.whole.apply(*decode_commit(number, data))

    def frames(self, log_id: int, payload: bytearray, size: int) -> Frames:
        segment, position, offset = self.ends.get(log_id, (1, 4096, 0))
        if self.random.random() < 0.1:
            segment, position, offset = segment + 1, 4096, offset + self.random.randrange(3)
        count = self.random.randrange(1, 4)
        part = Frames(segment, segment, position, count * size, offset, offset + count, at=len(payload))
        for number in range(count):
            body = b"%d/%d " % (log_id, offset + number)
            self.content.setdefault(log_id, {})[offset + number] = body.ljust(size, b".")
            payload += body.ljust(size, b".")
        self.ends[log_id] = (segment, position + count * size, offset + count)
        return part

    def publish(self, log_id: int, size: int = 40, trimmed: int = 0) -> None:
        payload = bytearray()
        self.commit(LogNews(log_id, f"topic-{log_id}", [self.frames(log_id, payload, size)], trimmed=trimmed), payload=bytes(payload))
        self.content[log_id] = {offset: body for offset, body in self.content[log_id].items() if offset >= trimmed}

    def drop(self, log_id: int) -> None:
        self.commit(LogNews(log_id, f"topic-{log_id}", reserved=77, dropped=True))
        del self.content[log_id], self.ends[log_id]

    def read(self, part: Frames) -> bytes:
        return self.store.get_part(part.object, part.at, part.length)

    def write(self, name: str, data: bytes) -> None:
        self.written += len(data)
        self.store.create(name, data)

    def pack(self) -> None:
        pack(self.whole, self.read, self.write)

    def check(self) -> None:
        assert self.whole.logs.keys() == self.content.keys()
        for log_id, log in self.whole.logs.items():
            found: dict[int, bytes] = {}
            for part in log.frames:
                data, count = self.read(part), part.end - part.first
                size = part.length // count
                found.update({part.first + n: data[n * size:(n + 1) * size] for n in range(count)})
            assert {offset: body for offset, body in found.items() if offset >= log.trimmed} == self.content[log_id]


@pytest.mark.parametrize("seed", range(5))
def test_packing_keeps_every_byte_and_forgets_no_object(seed):
    chain = Chain(seed)
    chain.commit()
    for _ in range(12):
        for _ in range(chain.random.randrange(1, 12)):
            log_id = chain.random.randrange(1, 5)
            if log_id in chain.content and chain.random.random() < 0.05:
                chain.drop(log_id)
            else:
                end = chain.ends.get(log_id, (0, 0, 0))[2]
                chain.publish(log_id, trimmed=end - 3 if end > 3 and chain.random.random() < 0.2 else 0)
        chain.pack()
        chain.check()
        head = chain.whole.head
        assert {part.object for part in chain.whole.extents()} == head.objects.keys()
        data = {name for name in chain.store.objects if name.startswith("data/")}
        assert data == head.objects.keys() | {*head.unneeded}
        for name in head.unneeded:
            chain.store.delete(name)
        head.unneeded = []
        chain.check()
        chain.whole = decode_checkpoint(head.number, chain.whole.encode())


def test_a_log_has_few_extents_and_its_bytes_move_seldom():
    chain = Chain(1)
    chain.random.random = lambda: 1.0           # one segment
    chain.commit()
    total = 0
    for _ in range(300):
        before = chain.ends.get(1, (1, 4096, 0))[1]
        chain.publish(1, size=30_000)
        total += chain.ends[1][1] - before
        chain.pack()
    frames = chain.whole.logs[1].frames
    assert len(frames) <= total // FINAL_BYTES + 12
    assert chain.written <= 10 * total
    assert all(len(data) <= PIECE_BYTES for data in chain.store.objects.values())
    chain.check()


def test_objects_that_are_mostly_dead_are_packed_again():
    chain = Chain(2)
    chain.commit()
    chain.publish(1, size=1000)
    for _ in range(10):
        chain.publish(2, size=1000)
    chain.pack()
    (before,) = chain.whole.head.objects
    chain.drop(2)
    chain.pack()
    assert before in chain.whole.head.unneeded and before not in chain.whole.head.objects
    assert chain.whole.head.left == {"topic-2": 77}
    chain.check()


def test_large_extents_stay_where_they_are():
    large = Frames(1, 1, 4096, FINAL_BYTES, 0, 10, f"data/{'d' * 32}")
    small = Frames(1, 1, 4096 + FINAL_BYTES, 100, 10, 20, commit_name(9))
    assert movable([large, small], set()) == {1}
    assert movable([msgspec.structs.replace(large, length=150), small], set()) == {0, 1}
    assert movable([msgspec.structs.replace(large, length=250), small], set()) == {1}
    assert movable([large], set()) == set()
    assert movable([large], {large.object}) == {0}


def test_a_failure_while_packing_changes_nothing():
    chain = Chain(3)
    chain.commit()
    for _ in range(20):
        chain.publish(1)
    before = chain.whole.encode()

    def fails(name: str, data: bytes) -> None:
        raise OSError

    with pytest.raises(OSError):
        pack(chain.whole, chain.read, fails)
    assert chain.whole.encode() == before


def test_offsets_that_are_there_already_are_damage():
    chain = Chain(4)
    chain.commit()
    chain.publish(1)
    with pytest.raises(DamagedError, match="there already"):
        chain.commit(LogNews(1, "topic-1", [Frames(9, 9, 4096, 10, 0, 1)]), payload=b"x" * 10)


@pytest.mark.parametrize("head", [Head(1, CLUSTER, unneeded=["commit/00000000000000000001"]), Head(1, CLUSTER, unneeded=["../x"]),
                                  Head(1, CLUSTER, commits_from=3), Head(2, CLUSTER), Head(1, CLUSTER, left={"a/b": 1})])
def test_impossible_checkpoints_are_refused(head):
    with pytest.raises(DamagedError):
        decode_checkpoint(1, Map(head).encode())
