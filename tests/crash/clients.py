"""Consumers that keep the books of their channel: a working consumer, and one that only checks the content."""

from __future__ import annotations

import contextlib
import random
import re
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.crash.books import ChannelBooks, Requeue, show
from tests.support.daemon import HEARTBEAT, Daemon, Message
from tests.support.patience import WAIT_SECONDS

BARRIER = b"PUB beats#ephemeral\n" + struct.pack(">i", 1) + b"x"
BARRIER_SECONDS = 0.004         # between two
RDY = 40
LONGEST_DELAY_MS = 400
HELD_MOST = 15                  # messages that one consumer keeps in flight
FAILED = re.compile(rb"E_(FIN|REQ|TOUCH)_FAILED \w+ (\w{16}) failed (?:ID not in flight|client does not own message)")
ASK_SECONDS = 0.02              # between two looks at /stats


class Frames:
    """Splits received bytes into messages, errors and answers."""

    def __init__(self, node: Daemon):
        self.client = node.connect()
        self.sock = self.client.sock
        self._kept = b""

    def subscribe(self, topic: str, channel: str, rdy: int) -> None:
        """SUB and RDY. Raises ConnectionError when the daemon is gone."""
        self.client.command(f"SUB {topic} {channel}")
        answer = self.client.frame()
        if answer is None:
            raise ConnectionResetError
        assert answer == (0, b"OK"), answer
        self.client.command(f"RDY {rdy}")

    def receive(self, seconds: float) -> list[tuple[int, bytes]]:
        """The frames received within this many seconds. Raises ConnectionError when the daemon is gone."""
        self.sock.settimeout(max(0.0005, seconds))
        try:
            data = self.sock.recv(1 << 20)
        except TimeoutError:
            return []
        if not data:
            raise ConnectionResetError
        self._kept += data
        at, frames = 0, []
        while len(self._kept) - at >= 8:
            size, kind = struct.unpack_from(">ii", self._kept, at)
            if len(self._kept) - at < 4 + size:
                break
            frame = self._kept[at + 8:at + 4 + size]
            at += 4 + size
            if frame == HEARTBEAT:
                self.client.send(b"NOP\n")
            else:
                frames.append((kind, frame))
        self._kept = self._kept[at:]
        return frames


@dataclass
class Actions:
    """Since one barrier."""

    finished: list[tuple[bytes, int]] = field(default_factory=list)     # with the result of fin()
    requeued: list[Requeue] = field(default_factory=list)


class Worker(threading.Thread):
    """Finishes most messages, requeues some, with and without a delay, touches some, and keeps a few in flight."""

    def __init__(self, node: Daemon, topic: str, books: ChannelBooks, seed: int):
        super().__init__(daemon=True)
        self._node, self._topic, self.books = node, topic, books
        self._random = random.Random(seed)
        self._stages = [Actions(), Actions(), Actions()]  # done with the next answer; with the one after; not yet sent
        self._bodies: dict[bytes, bytes] = {}               # by id
        self._held: list[Message] = []
        self._asked = self._answered = 0                    # moves of the channel when a barrier was sent
        self._stopping = threading.Event()
        self.failure: BaseException | None = None

    def stop(self) -> None:
        """Stops it in the middle of its work."""
        self._stopping.set()

    def run(self) -> None:
        try:
            with contextlib.suppress(OSError):      # the daemon is gone
                self._work()
        except BaseException as error:              # re-raised by the thread that joins
            self.failure = error
        for stage in reversed(self._stages):
            self.books.take_back(stage.requeued)

    def _work(self) -> None:
        frames = Frames(self._node)
        frames.subscribe(self._topic, self.books.name, RDY)
        self._asked = self.books.moves
        frames.client.send(BARRIER)
        answered, next_barrier = False, 0.0
        while not self._stopping.is_set():
            out = b""
            for kind, frame in frames.receive(0.02):
                if kind == 2:
                    out += self._handle(Message(frame))
                elif kind == 1:
                    self._refused(frame)
                else:
                    answered, self._answered = True, self._asked
                    for body, moves in self._stages[0].finished:
                        self.books.finish(body, moves)
                    self._stages[:2] = [self._stages[1], Actions()]
            if answered and time.monotonic() >= next_barrier:
                out += BARRIER
                self._asked = self.books.moves
                self._stages[1:] = [self._stages[2], Actions()]
                answered, next_barrier = False, time.monotonic() + BARRIER_SECONDS
            if out:
                frames.client.send(out)
        frames.client.close()

    def _handle(self, message: Message) -> bytes:
        """The commands to send for a message."""
        self.books.deliver(message, moves=self._answered)
        if any(body == message.body for stage in self._stages for body, _ in stage.finished):
            self.books.fin(message.body)    # a seek came before the FIN, which finishes this delivery
        self._bodies[message.id] = message.body
        held, choice = None, self._random.random()
        if choice < 0.1 and len(self._held) < HELD_MOST:
            self._held.append(message)
            return b"TOUCH " + message.id + b"\n" if choice < 0.05 else b""
        if choice < 0.2 and self._held:
            held = self._held.pop(self._random.randrange(len(self._held)))
        return self._end(message) + (self._end(held) if held else b"")

    def _end(self, message: Message) -> bytes:
        if self._random.random() < 0.75:
            self._stages[2].finished.append((message.body, self.books.fin(message.body)))
            return b"FIN " + message.id + b"\n"
        delay = self._random.choice((0, self._random.randrange(LONGEST_DELAY_MS)))
        self._stages[2].requeued.append(
            self.books.requeue(message.body, message.attempts, time.time() + delay / 1000))
        return b"REQ " + message.id + b" %d\n" % delay

    def _refused(self, frame: bytes) -> None:
        """A FIN or REQ for a message no longer in flight: an operator has moved the channel."""
        failed = FAILED.fullmatch(frame)
        assert failed, frame
        self.books.refused.append(frame)
        if failed[1] != b"FIN":
            return
        body = self._bodies[failed[2]]
        for stage in self._stages:      # belongs to the first one sent: they are answered in order
            for pair in stage.finished:
                if pair[0] == body:
                    stage.finished.remove(pair)
                    return


def look(node: Daemon, topic: str, books: ChannelBooks, finished: Callable[[], bool], tell: Callable[[], str]) -> None:
    """Receives everything in the channel; finishes a message if finished() is true, or keeps it in flight to the end.

    Fails when a message that must be delivered is missing; tell() adds details to the error.
    """
    frames = Frames(node)
    frames.subscribe(topic, books.name, node_rdy(node))
    came: list[Message] = []
    last, asked = time.monotonic(), 0.0
    while True:
        for kind, frame in frames.receive(0.005):
            assert kind == 2, frame
            came.append(Message(frame))
            books.deliver(came[-1], after_kill=True)
            last = time.monotonic()
        if time.monotonic() > asked + ASK_SECONDS:
            asked = time.monotonic()
            channel = node.channel(topic, books.name)
            if not channel["depth"] and not channel["deferred_count"] and channel["in_flight_count"] == len(came):
                break
        assert time.monotonic() < last + WAIT_SECONDS, f"{books.name} delivers {len(came)} messages: {tell()}"
    missing = books.required() - {message.body for message in came}
    assert not missing, f"{books.name} lacks {len(missing)} messages, among them {', '.join(map(show, sorted(missing)[:3]))}; {tell()}"
    books.settle()
    if done := [message for message in came if finished()]:
        frames.client.send(b"".join(b"FIN " + message.id + b"\n" for message in done) + BARRIER)
        answer = frames.client.frame()
        assert answer == (0, b"OK"), answer
        books.finish_all({message.body for message in done})
    frames.client.close()


def node_rdy(node: Daemon) -> int:
    """The RDY that the daemon's flags allow."""
    return next(int(flag.split("=")[1]) for flag in node.flags if flag.startswith("--max-rdy-count="))
