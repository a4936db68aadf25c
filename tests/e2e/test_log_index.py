"""A daemon that finds the index of a log missing or damaged makes it again: no acknowledged message is left out."""

import itertools
import json
import os
import random
import struct
from pathlib import Path

import pytest

from tests.support.daemon import Daemon, wait_until

COUNT = 300
LOG = ("--topic-storage=log", "--max-bytes-per-file=8000")


def bodies(numbers) -> list[bytes]:
    return [b"message %d " % number + b"x" * (number % 50) for number in numbers]


@pytest.fixture
def node(daemon) -> Daemon:
    """Killed, with some segments, of which a channel has finished 10 messages."""
    made = daemon(*LOG)
    consumer = made.connect().sub("t", "c", 10)
    for begin in range(0, COUNT, 50):
        made.connect().pub("t", *bodies(range(begin, begin + 50)))
    for message in consumer.messages(10):
        consumer.fin(message)
    made.connect().ok("DPUB t 1", b"last")
    consumer.messages(10)
    made.kill()
    return made


def damage(path, kind: str) -> None:
    """To an index."""
    data = bytearray(path.read_bytes())
    if kind == "missing":
        path.unlink()
        return
    if kind == "head":
        data[10] ^= 1
    elif kind == "last":
        data[-5] ^= 1
    elif kind == "zeros":
        data[:] = bytes(len(data))
    elif kind == "short":
        del data[7:]
    elif kind.startswith("cut"):        # of the last segment, that would be what a kill leaves
        half = 32 + 16 * ((len(data) - 32) // 32)
        del data[{"cut by one": -16, "cut by a piece": -7, "cut by half": half, "cut to the head": 32}[kind]:]
    path.write_bytes(data)


@pytest.mark.parametrize(("kind", "which"), [
    *itertools.product(["missing", "head", "last", "zeros", "short"], [0, 1, -1]),
    *itertools.product(["cut by one", "cut by a piece", "cut by half", "cut to the head"], [0, 1])])
def test_no_message_is_left_out(node, kind, which):
    indexes = sorted((node.data_path / "t.log").glob("*.idx"))
    assert len(indexes) > 2
    damage(indexes[which], kind)
    node.start()
    consumer = node.connect().sub("t", "c", 500)
    wanted = {*bodies(range(10, COUNT)), b"last"}
    got = []
    while wanted - set(got):
        got += [message.body for message in consumer.messages(1, finish=True)]
    wait_until(lambda: kind == "last" or "made again" in node.log)
    # And it goes on behind them.
    node.connect().pub("t", b"new")
    while b"new" not in got:
        got += [message.body for message in consumer.messages(1, finish=True)]
    assert len(got) == len(set(got))


MANY = 20_000


def with_many(daemon, *flags: str) -> tuple[Daemon, Path]:
    """A daemon with messages 000000 and so on in one segment, which a channel has not read; and the segment's index."""
    node = daemon("--topic-storage=log", *flags)
    node.connect().sub("t", "c", 0)
    for begin in range(0, MANY, 1000):
        node.connect().pub("t", *(b"%06d" % number for number in range(begin, begin + 1000)))
    [index] = (node.data_path / "t.log").glob("*.idx")
    return node, index


@pytest.mark.parametrize("when", ["while it runs", "before it starts"])
@pytest.mark.parametrize("kind", ["noise", "zeros"])
def test_a_long_run_of_damaged_entries_is_gone_through_once(daemon, kind, when):
    """Noise hides no record that lies intact in the .dat; records whose entries are zeros are lost, and counted at once."""
    node, index = with_many(daemon)
    if when == "before it starts":
        node.kill()
    with index.open("r+b") as file:
        file.seek(32 + 16 * 10)
        length = 16 * (MANY - 20)
        file.write(bytes(length) if kind == "zeros" else random.Random(1).randbytes(length))
    if when == "before it starts":
        node.start()
    intact = range(MANY) if kind == "noise" else [*range(10), *range(MANY - 10, MANY)]
    consumer = node.connect().sub("t", "c", 2500)
    assert [int(message.body) for message in consumer.messages(len(intact), finish=True)] == list(intact)
    node.connect().pub("t", b"new")
    assert [message.body for message in consumer.messages(1, finish=True)] == [b"new"]
    assert json.loads(node.http("GET", "/topic/log?topic=t")[1])["damaged"] == MANY - len(intact)
    node.stop()


@pytest.mark.parametrize("when", ["while it runs", "before it starts"])
@pytest.mark.parametrize("kind", ["one place", "many places"])
def test_records_and_the_entries_behind_them_are_damaged(daemon, kind, when):
    """Every intact record is delivered, and has its offset if there is one place of damage. Where sizes are damaged in many
    places, nothing says how many records each has taken; here it is one."""
    node, index = with_many(daemon, "--log-retain-time=1h")
    if when == "before it starts":
        node.kill()
    with index.open("r+b") as file:
        file.seek(32 + 16 * 10)
        file.write(random.Random(1).randbytes(16 * (MANY - 20)))
    lost = [*range(5000, 6600)] if kind == "one place" else [*range(5000, 15000, 500), 15001]
    with index.with_suffix(".dat").open("r+b") as file:
        for number in lost:
            file.seek(36 * number)
            file.write(bytes(36) if kind == "one place" else b"\x7f")
    if when == "before it starts":
        node.start()
    kept = sorted({*range(MANY)} - {*lost})
    consumer = node.connect().sub("t", "c", 2500)
    assert [int(message.body) for message in consumer.messages(len(kept), finish=True)] == kept
    wait_until(lambda: node.channel("t", "c")["depth"] == 0)
    assert json.loads(node.http("GET", "/topic/log?topic=t")[1])["damaged"] == len(lost)
    assert node.http("GET", "/topic/read?topic=t&offset=18000&max_messages=1")[1][30:] == b"018000"
    node.stop()


@pytest.mark.parametrize("left", [None, 0, 32 + 16 * 100, 32 + 16 * 100 + 7])
def test_an_index_that_is_removed_or_cut_while_it_runs(daemon, left):
    """Records that the log knows of are found without it."""
    node, index = with_many(daemon, "--log-retain-time=1h")
    if left is None:
        index.unlink()
    else:
        os.truncate(index, left)
    consumer = node.connect().sub("t", "c", 2500)
    assert [int(message.body) for message in consumer.messages(MANY, finish=True)] == [*range(MANY)]
    assert node.http("GET", "/topic/read?topic=t&offset=18000&max_messages=1")[1][30:] == b"018000"
    assert json.loads(node.http("GET", "/topic/log?topic=t")[1])["damaged"] == 0
    assert node.stop() == 0
    assert node.log.count(f"LOG(t): {index.name} is missing") == (left is None)


def test_a_message_of_records_before_one_that_is_damaged(daemon):
    """The first record is not followed by another one, and has some inside, so it is taken for several. There are more of
    these than offsets, and nothing that goes on for ever."""
    node = daemon("--topic-storage=log", "--log-retain-time=1h")
    node.connect().sub("t", "c", 0)
    inside = struct.pack(">iqH", 26 + 9, 1_700_000_000_000_000_000, 0) + b"0" * 16 + b"z" * 9
    node.connect().pub("t", b"outer " + 3 * inside, b"damaged", b"without an entry", b"sound")
    node.kill()
    [index] = (node.data_path / "t.log").glob("*.idx")
    with index.open("r+b") as file:
        file.seek(32)
        file.write(random.Random(1).randbytes(16 * 3))
    with index.with_suffix(".dat").open("r+b") as file:
        file.seek(30 + 6 + 3 * len(inside))
        file.write(b"\x40")
    node.start()
    consumer = node.connect().sub("t", "c", 100)
    assert b"sound" in [message.body for message in consumer.messages(3, finish=True)]
    wait_until(lambda: node.channel("t", "c")["depth"] == 0)
    assert node.stop() == 0
