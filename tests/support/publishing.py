"""Publishers that keep books: the messages sent, and those acknowledged by a time.

A body identifies its publisher, batch, place in the batch, and batch size. Each publisher has its own connection and
publishes in its way until the daemon is gone or stop() is called.
"""

from __future__ import annotations

import http.client
import random
import re
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from tests.support.daemon import Client, Daemon, batch
from tests.support.patience import WAIT_SECONDS

BODY = re.compile(rb"(\w+)-(\d+)-(\d+)/(\d+)-\.*")
WINDOW = 16                 # unanswered PUBs of one publisher
LONGEST_DELAY_MS = 300


@dataclass(frozen=True)
class Batch:
    """The messages of one command."""

    bodies: tuple[bytes, ...]
    due: float = 0.0            # time.time() before which it must not be delivered
    begun: float = field(default_factory=time.monotonic)    # before it was sent
    answered: int = 0           # the books' clock when the answer had arrived


@dataclass
class Books:
    """The books of several publishers. clock: dates answers, by numbers that never fall."""

    clock: Callable[[], int] = time.monotonic_ns
    sent: dict[bytes, Batch] = field(default_factory=dict)      # by body
    acknowledged: list[Batch] = field(default_factory=list)
    refused: list[bytes] = field(default_factory=list)          # error answers

    def send(self, batch: Batch) -> None:
        """Called before it is sent."""
        self.sent.update(dict.fromkeys(batch.bodies, batch))

    def answer(self, sent: Batch, ok: bool, text: bytes) -> None:
        """An answer has arrived."""
        if ok:
            self.acknowledged.append(replace(sent, answered=self.clock()))
        else:
            self.refused.append(text)

    def until(self, time: int) -> list[Batch]:
        """The batches acknowledged by that time."""
        return [batch for batch in self.acknowledged if batch.answered <= time]

    def check(self, there: Collection[bytes], finished: Collection[bytes] = ()) -> None:
        """All of `there` was sent, and each batch is there as a whole or not at all, except for possibly finished
        messages."""
        unknown = [body for body in there if body not in self.sent]
        assert not unknown, f"never published: {unknown[:3]}"
        for body in there:
            parts = self.sent[body].bodies
            if len(parts) > 1:
                missing = [part for part in parts if part not in there and part not in finished]
                assert not missing, f"{body!r} of a batch is there, {missing[0]!r} is not"


class Publisher(threading.Thread):
    """Publishes to a topic; `way` is one of WAYS."""

    def __init__(self, node: Daemon, books: Books, topic: str, way: str, name: str, seed: int, pause: float = 0.0):
        """pause: seconds between two commands."""
        super().__init__(daemon=True)
        self._node, self._books, self._topic, self._name, self._pause = node, books, topic, name, pause
        self._work = getattr(self, f"_{way.replace('-', '_')}")
        self._random = random.Random(seed)
        self._number = 0
        self._stopping = threading.Event()
        self.failure: BaseException | None = None

    def stop(self) -> None:
        """Ends it after the next answer."""
        self._stopping.set()

    def run(self) -> None:
        try:
            self._work()
        except (OSError, http.client.HTTPException):
            pass                            # the daemon is gone
        except BaseException as error:      # for the test, which joins
            self.failure = error

    def _next(self, count: int = 1, due: float = 0.0) -> Batch:
        self._number += 1
        made = Batch(tuple(b"%s-%d-%d/%d-%s" % (self._name.encode(), self._number, part, count,
                                                b"." * self._random.choice((0, 10, 200, 1000)))
                           for part in range(count)), due)
        self._books.send(made)
        return made

    def _goes_on(self) -> bool:
        return not self._stopping.wait(self._pause) if self._pause else not self._stopping.is_set()

    def _answered(self, client: Client, sent: Batch) -> None:
        frame = client.frame()
        if frame is None:
            raise ConnectionError
        self._books.answer(sent, frame == (0, b"OK"), frame[1])

    # ------------------------------------------------------------------ ways

    def _pub(self) -> None:
        client = self._node.connect()
        while self._goes_on():
            sent = self._next()
            client.command(f"PUB {self._topic}", sent.bodies[0])
            self._answered(client, sent)

    def _window(self) -> None:
        """PUBs that do not wait for each other."""
        client, waiting = self._node.connect(), []
        while self._goes_on():
            while len(waiting) < WINDOW:
                waiting.append(self._next())
                client.command(f"PUB {self._topic}", waiting[-1].bodies[0])
            self._answered(client, waiting.pop(0))
        for sent in waiting:
            self._answered(client, sent)

    def _mpub(self) -> None:
        client = self._node.connect()
        while self._goes_on():
            sent = self._next(self._random.randint(2, 40))
            client.command(f"MPUB {self._topic}", batch(*sent.bodies))
            self._answered(client, sent)

    def _dpub(self) -> None:
        client = self._node.connect()
        while self._goes_on():
            delay = self._random.randrange(LONGEST_DELAY_MS)
            sent = self._next(due=time.time() + delay / 1000)
            client.command(f"DPUB {self._topic} {delay}", sent.bodies[0])
            self._answered(client, sent)

    def _http(self) -> None:
        self._requests(lambda: (self._next(), ""), "/pub")

    def _http_mpub(self) -> None:
        self._requests(lambda: (self._next(self._random.randint(2, 40)), ""), "/mpub")

    def _http_dpub(self) -> None:
        def deferred() -> tuple[Batch, str]:
            delay = self._random.randrange(LONGEST_DELAY_MS)
            return self._next(due=time.time() + delay / 1000), f"&defer={delay}"

        self._requests(deferred, "/pub")

    def _requests(self, make: Callable[[], tuple[Batch, str]], path: str) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._node.http_port, timeout=WAIT_SECONDS)
        while self._goes_on():
            sent, arguments = make()
            connection.request("POST", f"{path}?topic={self._topic}{arguments}", b"\n".join(sent.bodies))
            answer = connection.getresponse()
            self._books.answer(sent, answer.status == 200, answer.read())


WAYS = ("pub", "window", "mpub", "dpub", "http", "http-mpub", "http-dpub")


class Publishers:
    """One publisher for each way, in a with statement: they publish until its end."""

    def __init__(self, node: Daemon, books: Books, topic: str, ways: Collection[str] = WAYS, seed: int = 0,
                 name: str = "p", pause: float = 0.0):
        """name: part of the bodies; no two publishers of the same books may share one."""
        self.all = [Publisher(node, books, topic, way, f"{name}{number}", seed + number, pause)
                    for number, way in enumerate(ways)]

    def __enter__(self) -> Publishers:
        for publisher in self.all:
            publisher.start()
        return self

    def __exit__(self, *_: object) -> None:
        for publisher in self.all:
            publisher.stop()
        for publisher in self.all:
            publisher.join(WAIT_SECONDS)
            assert not publisher.is_alive(), "a publisher still waits for an answer"
            if publisher.failure is not None:
                raise publisher.failure
