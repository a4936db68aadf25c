"""The table of publish ids against a plain Python model."""

import random

import pytest

from nsqc.store.publishids import sip
from tests.compiled.logs import Ids

CLAIMED, KNOWN, COLLECTED, RUNNING, TAKEN = range(5)
WINDOW = 100.0
SLACK = 0.2     # ticks are 67 ms


def test_siphash_is_that_of_its_authors():
    """The first vectors of SipHash-2-4 with 128 bits."""
    key = bytes(range(16))
    assert sip(key, b"", 2, 4).hex() == "a3817f04ba25a8e66df67214c7550293"
    assert sip(key, b"\0", 2, 4).hex() == "da87c1d86b99af44347659119b22fc45"
    assert sip(key, bytes(range(15)), 2, 4).hex() == "5493e99933b0a8117e08ec0f97cfc3d9"
    assert sip(key, b"x") != sip(bytes(16), b"x")


class Model:
    """The expected table: state and time by id."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.ids = Ids(WINDOW, 1 << 30)
        self.now = 10.0
        self.known: dict[bytes, tuple[int, float]] = {}
        self.open: dict[bytes, int] = {}
        self.collected: list[bytes] = []
        self.running: list[bytes] = []
        self.is_running = False

    def claim(self, name: bytes) -> None:
        state, since = self.known.get(name, (CLAIMED, 0.0))
        verdict, number = self.ids.claim(name, self.now)
        if state == KNOWN and self.now - since > WINDOW + SLACK:
            state = CLAIMED
        elif state == KNOWN and self.now - since > WINDOW:
            return self._follow(name, verdict, number)      # within a tick of its end
        assert verdict == state, (name, verdict, state)
        self._follow(name, verdict, number)

    def _follow(self, name: bytes, verdict: int, number: int) -> None:
        if verdict == CLAIMED:
            self.known[name] = TAKEN, self.now
            self.open[name] = number

    def settle(self) -> None:
        name = self.random.choice([*self.open])
        number = self.open.pop(name)
        what = self.random.choice((self.ids.keep, self.ids.collect, self.ids.collect, self.ids.release))
        what(number)
        if what == self.ids.release:
            del self.known[name]
        elif what == self.ids.keep:
            self.known[name] = KNOWN, self.known[name][1]
        else:
            self.known[name] = COLLECTED, self.known[name][1]
            self.collected.append(name)

    def commit(self) -> None:
        if not self.is_running:
            self.ids.begin()
            self.running, self.collected = self.collected, []
            for name in self.running:
                self.known[name] = RUNNING, self.known[name][1]
        else:
            failed = self.random.random() < 0.3
            self.ids.end(5 if failed else 0)
            for name in self.running:
                if failed:
                    del self.known[name]
                else:
                    self.known[name] = KNOWN, self.known[name][1]
            self.running = []
        self.is_running = not self.is_running


@pytest.mark.parametrize("seed", range(2))
def test_random_steps(seed):
    model = Model(seed)
    span = 50
    for step in range(60_000):
        if step % 10_000 == 0:
            span = model.random.choice((20, 400, 20_000, 200_000))
        roll = model.random.random()
        if roll < 0.6:
            model.claim(b"%d" % model.random.randrange(span))
        elif roll < 0.9 and model.open:
            model.settle()
        elif roll < 0.95:
            model.commit()
        elif roll < 0.99:
            model.now += model.random.choice((0.01, 0.1, 1.0, 30.0) if step % 100 else (500.0,))
        else:
            model.ids.expire(model.now, model.random.randrange(50))
    for name in [*model.open]:
        model.ids.release(model.open[name])
    if not model.is_running:
        model.commit()
    model.ids.end(0)
    model.ids.begin()
    model.ids.end(0)
    model.now += 2 * WINDOW
    while model.ids.expire(model.now, 1000):
        pass
    assert model.ids.table.count == 0
    assert model.ids.memory() == 0


def test_an_id_takes_40_to_72_bytes():
    ids = Ids(WINDOW, 1 << 30)
    count = 300_000
    for number in range(count):
        verdict, claim = ids.claim(b"order-%d" % number, 1.0)
        assert verdict == CLAIMED
        ids.keep(claim)
    assert 39 * count < ids.memory() < 73 * count
    assert all(ids.claim(b"order-%d" % number, 2.0)[0] == KNOWN for number in range(0, count, 7))


def test_beyond_the_limit_the_oldest_are_forgotten():
    ids = Ids(WINDOW, 1000)
    for number in range(5000):
        ids.keep(ids.claim(b"%d" % number, 1.0)[1])
    assert (ids.table.count, ids.table.forgotten) == (1000, 4000)
    assert ids.memory() < 100_000
    assert all(ids.claim(b"%d" % number, 1.0)[0] == KNOWN for number in range(4000, 5000))
    assert ids.claim(b"3999", 1.0)[0] == CLAIMED


def test_publishes_that_fail_take_no_memory():
    ids = Ids(WINDOW, 1000)
    ids.keep(ids.claim(b"first", 1.0)[1])
    for number in range(10_000):
        ids.release(ids.claim(b"%d" % number, 1.0)[1])
    assert ids.length == 1
    for _ in range(100):
        for number in range(100):
            ids.collect(ids.claim(b"%d" % number, 1.0)[1])
        ids.begin()
        ids.end(5)
    assert ids.length <= 2001 and ids.table.forgotten <= 1
    assert ids.claim(b"7", 1.0)[0] == CLAIMED
