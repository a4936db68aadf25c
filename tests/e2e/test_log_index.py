"""A daemon that finds the index of a log missing or damaged makes it again: no acknowledged message is left out."""

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
    path.write_bytes(data)


@pytest.mark.parametrize("which", [0, 1, -1])
@pytest.mark.parametrize("kind", ["missing", "head", "last", "zeros", "short"])
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
