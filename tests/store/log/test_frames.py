"""Frames: a written frame is found, whatever else is damaged. The model is ten lines: valid frames count."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from nsqc.store.message import GuidFactory
from tests.compiled import logs

SALT = 0x1122334455667788
AT = 4096
SOUND, SHORT, DAMAGED, NONE = 0, 1, 2, 3


def batch(bodies: list[bytes]) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


def written(tmp_path: Path, data: bytes) -> str:
    path = tmp_path / "segment"
    path.write_bytes(bytes(AT) + data)
    return str(path)


def sealed(collector: logs.Collector, first: int = 0, position: int = AT) -> bytes:
    data, _ = collector.sealed(SALT, position, first, AT)
    return data


def collect(bodies: list[bytes]) -> logs.Collector:
    collector = logs.Collector(GuidFactory.make(7))
    for body in bodies:
        collector.add(body, 10**18)
    return collector


def test_messages_of_a_moment_share_a_frame(tmp_path: Path) -> None:
    data = sealed(collect([b"one", b"two", b""]), first=5)
    path = written(tmp_path, data)
    assert logs.walk(path, SALT, AT, AT + len(data), 0) == [(AT, 5, [b"one", b"two", b""], [], 0, -1), (None, -1)]
    assert len(data) == 64 + 3 * 4 + 6 + 6      # head, sizes, bodies, padding


def test_a_later_message_begins_a_frame(tmp_path: Path) -> None:
    collector = collect([b"a"])
    collector.add(b"b", 10**18 + 2_000_000)
    collector.add(b"c", 10**18)                 # the clock was set back
    data = sealed(collector)
    frames = logs.walk(written(tmp_path, data), SALT, AT, AT + len(data), 0)
    assert [frame[1:3] for frame in frames[:-1]] == [(0, [b"a"]), (1, [b"b"]), (2, [b"c"])]


def test_delays_lie_behind_the_records(tmp_path: Path) -> None:
    collector = logs.Collector(GuidFactory.make(0))
    collector.add(b"now", 10**18)
    collector.add(b"later", 10**18, 1500)
    data = sealed(collector)
    (_, _, bodies, delays, flags, _), _ = logs.walk(written(tmp_path, data), SALT, AT, AT + len(data), 0)
    assert (bodies, delays, flags) == ([b"now", b"later"], [(1, 10**18 + 1_500_000_000, 1500)], 2)


@pytest.mark.parametrize("sizes", [[70_000], [30_000] * 5, [1] * 40_000, [65_532], [65_533], [10, 200_000, 10]])
def test_a_batch_fills_frames_that_continue(tmp_path: Path, sizes: list[int]) -> None:
    bodies = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    collector = collect([b"before"])
    collector.add_batch(batch(bodies), len(bodies), 10**18)
    collector.add(b"after", 10**18)
    data = sealed(collector)
    frames = logs.walk(written(tmp_path, data), SALT, AT, AT + len(data), 0)[:-1]
    assert [body for frame in frames for body in frame[2]] == [b"before", *bodies, b"after"]
    assert [frame[1] for frame in frames] == [sum(len(f[2]) for f in frames[:at]) for at in range(len(frames))]
    parts = [frame for frame in frames if b"before" not in frame[2] or len(frame[2]) > 1]
    assert all(frame[4] == 1 for frame in frames[:-2] if frame in parts and frame[2] != [b"before"])
    assert frames[-1][4] == 0


def test_every_flipped_byte_costs_its_frame_and_no_other(tmp_path: Path) -> None:
    collector = logs.Collector(GuidFactory.make(0))
    for number in range(4):
        collector.add(b"body %d" % number, 10**18 + number * 10**7)
    data = sealed(collector)
    path = written(tmp_path, data)
    places = [frame[0] for frame in logs.walk(path, SALT, AT, AT + len(data), 0)[:-1]]
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0x40
        found = logs.walk(written(tmp_path, bytes(damaged)), SALT, AT, AT + len(data), 0)
        hit = [place for place in places if place <= AT + at][-1]
        padding = at >= hit - AT + 64 + 4 + len("body 0")
        assert [frame[0] for frame in found[:-1]] == [place for place in places if padding or place != hit], at


@pytest.mark.parametrize("cut", range(0, 200, 3))
def test_a_file_that_ends_early_has_what_is_whole(tmp_path: Path, cut: int) -> None:
    collector = logs.Collector(GuidFactory.make(0))
    for number in range(3):
        collector.add(b"0123456789", 10**18 + number * 10**7)
    data = sealed(collector)
    found = logs.walk(written(tmp_path, data[:cut]), SALT, AT, AT + cut, 0)
    assert len(found) - 1 == cut // (len(data) // 3)


def test_a_frame_in_a_body_is_none(tmp_path: Path) -> None:
    inner = sealed(collect([b"inner"]))
    collector = collect([inner, b"x" * 37 + inner])
    data = bytearray(sealed(collector))
    data[0] ^= 1                                # the head of the outer frame is lost: its payload is searched
    found = logs.walk(written(tmp_path, bytes(data)), SALT, AT, AT + len(data), 0)
    assert found == [(None, AT)]


def test_a_frame_of_another_salt_or_place_is_none() -> None:
    data = sealed(collect([b"x"]))
    assert logs.check(data, SALT, AT)[0] == SOUND
    assert logs.check(data, SALT + 1, AT)[0] == NONE
    assert logs.check(data, SALT, AT + 8)[0] == NONE
    assert logs.check(data[:70], SALT, AT) == (SHORT, len(data))


def test_whatever_happens_valid_frames_count(tmp_path: Path) -> None:
    random.seed(20261125)
    for _ in range(200):
        collector = logs.Collector(GuidFactory.make(0))
        clock = 10**18
        for _ in range(random.randrange(1, 12)):
            clock += random.choice([0, 10**7])
            if random.random() < 0.3:
                bodies = [random.randbytes(random.choice([0, 3, 500, 40_000])) for _ in range(random.randrange(1, 5))]
                collector.add_batch(batch(bodies), len(bodies), clock)
            else:
                collector.add(random.randbytes(random.randrange(40)), clock)
        data = bytearray(sealed(collector))
        path = written(tmp_path, bytes(data))
        before = logs.walk(path, SALT, AT, AT + len(data), 0)[:-1]
        for _ in range(random.randrange(4)):
            at = random.randrange(len(data))
            data[at:at + random.choice([1, 100, 5000])] = random.randbytes(min(random.choice([1, 100]), len(data) - at))
        data = data[:random.choice([len(data), random.randrange(len(data) + 1)])]
        after = logs.walk(written(tmp_path, bytes(data)), SALT, AT, AT + len(data), 0, step=random.choice([0, 64]))
        heads = logs.walk(written(tmp_path, bytes(data)), SALT, AT, AT + len(data), 0, heads=True)
        ends = [frame[0] for frame in before][1:]
        model = [frame[:5] for frame, end in zip(before, [*ends, None], strict=True) if is_valid(bytes(data), frame[0])]
        assert [frame[:5] for frame in after[:-1]] == model
        assert {frame[0] for frame in after[:-1]} <= {frame[0] for frame in heads[:-1]}


def is_valid(data: bytes, position: int) -> bool:
    """The model: a frame counts if it is sound where it lies."""
    return logs.check(data[position - AT:], SALT, position)[0] == SOUND
