"""The bytes of commits and checkpoints: what was written is read, and anything else is refused in one line."""

import random
import zlib

import msgspec
import pytest

from nsqc.bucket.checkpoint import Head, LogMap, Map, OtherChainError, decode_checkpoint
from nsqc.bucket.commit import (
    CHECKPOINT,
    COMMIT,
    Commit,
    DamagedError,
    Frames,
    LogNews,
    Records,
    commit_name,
    decode_commit,
    encode_commit,
    seal,
)

CLUSTER, WRITER, DATA = "c" * 32, "a" * 32, f"data/{'d' * 32}"


def frames(first: int, end: int, **changes: object) -> Frames:
    made = Frames(1, 2**64 - 1, 4096, (end - first) * 100, first, end)
    return msgspec.structs.replace(made, **changes)


def commit(*logs: LogNews, number: int = 1, previous: int = 0, **changes: object) -> Commit:
    made = Commit(number, CLUSTER, 1, WRITER, previous, 10**18, "host", is_claim=number == 1, logs=logs)
    return msgspec.structs.replace(made, **changes)


NEWS = LogNews(2**64 - 1, "orders", (frames(0, 5), frames(5, 7, at=500), frames(9, 12, object=DATA, at=10)),
               (Records(True, 3, b"state"), Records(False, 4, b"more")), reserved=1 << 40, trimmed=1)
SOUND = encode_commit(commit(NEWS, metadata=b"{}"), [b"x" * 500, b"y" * 200])


def sound_checkpoint() -> bytes:
    whole = Map(Head(0, CLUSTER))
    whole.apply(*decode_commit(1, SOUND))
    for log_id in range(1, 600):
        whole.logs[log_id] = LogMap(f"topic-{log_id}", [frames(0, 5, object=DATA)])
    return whole.encode()


def test_a_commit_is_read_as_it_was_written():
    read, crc = decode_commit(1, SOUND)
    assert crc == zlib.crc32(SOUND[16:], zlib.crc32(SOUND[8:12]))
    (log,) = read.logs
    assert [SOUND[part.at:part.at + part.length] for part in log.frames[:2]] == [b"x" * 500, b"y" * 200]
    assert [part.object for part in log.frames] == [commit_name(1), commit_name(1), DATA]
    assert msgspec.structs.replace(read, logs=()) == commit(metadata=b"{}")
    assert (log.cursors, log.reserved, log.trimmed) == ([*NEWS.cursors], 1 << 40, 1)


def test_a_checkpoint_is_read_as_it_was_written():
    data = sound_checkpoint()
    whole = decode_checkpoint(1, data)
    assert whole.encode() == data
    assert len(whole.logs) == 600
    assert whole.logs[2**64 - 1].frames[0].first == 0 and whole.logs[599].topic == "topic-599"


@pytest.mark.parametrize(("decode", "data"), [(decode_commit, SOUND), (decode_checkpoint, sound_checkpoint()[:3000])])
def test_every_changed_bit_and_every_cut_is_noticed(decode, data):
    for at in range(min(len(data), 300)):
        changed = bytearray(data)
        changed[at] ^= 1 << at % 8
        with pytest.raises(DamagedError):
            decode(1, bytes(changed))
    for length in (*range(64), *range(64, len(data), 97)):
        with pytest.raises(DamagedError):
            decode(1, data[:length])


@pytest.mark.parametrize("magic", [COMMIT, CHECKPOINT])
def test_hostile_headers_are_refused(magic):
    """Whatever a header says, with a valid checksum: an error, or a value within bounds."""
    decode = decode_commit if magic == COMMIT else decode_checkpoint
    sound = msgspec.msgpack.encode(commit(NEWS)) if magic == COMMIT else msgspec.msgpack.encode(Head(1, CLUSTER))
    chance = random.Random(1)
    headers = [b"", b"\xc0", b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\x91" * 100_000, b"\xc6\xff\xff\xff\xff"]
    for _ in range(3000):
        changed = bytearray(sound)
        for _ in range(chance.randrange(1, 4)):
            changed[chance.randrange(len(changed))] = chance.choice((0, 0x7F, 0x80, 0xCF, 0xD9, 0xDC, 0xDD, 0xDF, 0xFF))
        headers.append(bytes(changed))
    for header in headers:
        try:
            decode(1, seal(magic, header, [b"z" * 700]))
        except DamagedError as error:
            assert len(str(error)) < 500 and "\n" not in str(error)


@pytest.mark.parametrize(("number", "change"), [
    (2, {}),                                                            # copied to another number
    (1, {"logs": [LogNews(1, "t", [frames(0, 5, at=300)])]}),           # beyond the end
    (1, {"logs": [LogNews(1, "t", [frames(5, 5)])]}),                   # no message
    (1, {"logs": [LogNews(1, "t", [frames(0, 5), frames(4, 6)])]}),     # twice
    (1, {"logs": [LogNews(1, "t", [frames(0, 5, object="../../etc/passwd")])]}),
    (1, {"logs": [LogNews(1, "t", [frames(0, 5, object="data/../x")])]}),
    (1, {"logs": [LogNews(1, "t", [frames(-1, 5)])]}),
    (1, {"logs": [LogNews(1, "t", [frames(0, 2**63, length=100)])]}),
    (1, {"writer": "A"}),
    (1, {"host": "h" * 1001}),
    (1, {"logs": [LogNews(1, "../etc")]}),
])
def test_impossible_commits_are_refused(number, change):
    data = encode_commit(commit(**change), [b"x" * 700])
    with pytest.raises(DamagedError):
        decode_commit(number, data)


def test_a_later_version_is_named():
    with pytest.raises(DamagedError, match="version 2 is not known"):
        decode_commit(1, COMMIT[:7] + b"\x02" + SOUND[8:])


@pytest.mark.parametrize("change", [
    {"number": 3}, {"previous": 7}, {"cluster": "e" * 32}, {"epoch": 2}, {"writer": "b" * 32},
    {"epoch": 3, "writer": "b" * 32, "is_claim": True}, {"epoch": 1, "writer": "b" * 32, "is_claim": True},
])
def test_a_commit_that_does_not_follow_is_refused(change):
    whole = Map(Head(0, CLUSTER))
    whole.apply(*decode_commit(1, SOUND))
    following = commit(number=2, previous=whole.head.crc)
    with pytest.raises(OtherChainError):
        whole.apply(msgspec.structs.replace(following, **change), 1)
    whole.apply(following, 1)
