"""`nsqc tail --from`: follows log-backed topics from a given place. One thread reads each topic of each node; the main
thread writes."""

from __future__ import annotations

import select
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from nsqc.client.backoff import Backoff
from nsqc.client.errors import ClientError
from nsqc.options.places import BEGINNING, END, Place
from nsqc.tools import output
from nsqc.tools.errors import NoName, ToolError
from nsqc.tools.logreader import Beyond, Form, LogReader, Piece, Removed
from nsqc.tools.nodehttp import Unreachable
from nsqc.tools.output import PipeClosed

if TYPE_CHECKING:
    from nsqc.tools.cluster import Cluster, Node
    from nsqc.tools.nodehttp import NodeHttp
    from nsqc.tools.stopping import Stop

WAIT_S = 30.0           # of a long poll
PIECES = 4              # read ahead of stdout
BACKOFF = Backoff(0.1, 15.0)
ABSENT = Backoff(1.0, 15.0)


class Arrived(NamedTuple):
    """Records read by a thread."""

    topic: str
    node: Node
    piece: Piece


class LogTail:
    """count: messages to print in total, 0: unlimited. warn is called for nodes that are lost or found again, and for
    unreadable messages."""

    def __init__(self, cluster: Cluster, place: Place, stop: Stop, form: Form, count: int, warn: Callable[[str], None]):
        self._cluster, self._place, self._stop, self._form, self.warn = cluster, place, stop, form, warn
        self._left = count
        self._endless = count == 0
        # Where topics that do not exist yet begin: everything published from now on is new.
        self.later = Place(time=time.time_ns()) if place.word == END else place
        self._arrived: deque[Arrived] = deque()
        self._room = threading.BoundedSemaphore(PIECES)
        self._ended = threading.Event()
        self._fatal: Exception | None = None
        self._followed: set[tuple[str, Node]] = set()

    def start(self, topic: str, wait: bool) -> None:
        """Adds a topic; wait: it need not exist yet. Raises NoNode, NoName, ToolError."""
        nodes = self._cluster.nodes(topic)
        having = list(self._cluster.topic_stats(topic)) if nodes else []
        if not having and not wait:
            raise NoName("topic", topic, self._cluster.topic_names())
        if self._place.offset >= 0 and len(nodes) > 1:
            raise ToolError(f"an offset belongs to one node, but {len(nodes)} are selected: choose one by --nsqd")

        def offset_of(api: NodeHttp, _: Node) -> int:
            reader = LogReader(api, topic)
            reader.begin(self._place)
            return reader.offset

        offsets = self._cluster.each(having, offset_of, lambda _: None) if having else {}
        for node in nodes:      # including those that do not answer: their threads report that and retry
            self._follow(topic, node, offsets.get(node))
        if self._cluster.nsqlookupd:
            threading.Thread(target=self._find, args=(topic,), daemon=True).start()

    def run(self) -> None:
        """Runs until a signal or the last message. Raises PipeClosed, OSError, ToolError, ClientError."""
        poll = select.poll()
        poll.register(self._stop, select.POLLIN)
        poll.register(output.STDOUT, 0)     # reports a closed reader
        try:
            while not self._stop and (self._endless or self._left):
                ready = dict(poll.poll())
                if output.STDOUT in ready:
                    raise PipeClosed
                self._stop.calm()
                if self._fatal is not None:
                    raise self._fatal
                self._write()
        finally:
            self._ended.set()

    def _write(self) -> None:
        while self._arrived and not self._stop and (self._endless or self._left):
            topic, node, piece = self._arrived.popleft()
            text, count = self._form(topic, node, piece, 2**62 if self._endless else self._left)
            output.write_bytes(text)
            self._left -= 0 if self._endless else count
            self._room.release()

    # ------------------------------------------------------------------ threads

    def _follow(self, topic: str, node: Node, offset: int | None) -> None:
        self._followed.add((topic, node))
        threading.Thread(target=Follower(self, topic, node, offset).run, daemon=True).start()

    def _find(self, topic: str) -> None:
        """nsqlookupd may list more nodes later."""
        while not self._ended.wait(self._cluster.poll_interval):
            with suppress(ToolError, ClientError):
                for node in self._cluster.nodes(topic):
                    if (topic, node) not in self._followed:
                        self._follow(topic, node, None)

    def put(self, arrived: Arrived) -> None:
        """Called by threads; blocks while PIECES are unwritten."""
        self._room.acquire()
        self._arrived.append(arrived)
        self._stop.wake()

    def fail(self, error: Exception) -> None:
        """Called by threads: ends the tool."""
        self._fatal = error
        self._stop.wake()

    def reader(self, topic: str, node: Node, offset: int) -> LogReader:
        """A reader with its own connection, whose timeout allows for long polls."""
        return LogReader(self._cluster.http(node, WAIT_S), topic, offset)

    def pause(self, seconds: float) -> bool:
        """Waits; whether to continue."""
        return not self._ended.wait(seconds)


class Follower:
    """Follows one topic of one node, on its own thread. offset: None if the topic or node does not exist yet."""

    def __init__(self, tail: LogTail, topic: str, node: Node, offset: int | None):
        self._tail, self._topic, self._node = tail, topic, node
        self._reader = tail.reader(topic, node, offset or 0)
        self._place = tail.later if offset is None else None    # not resolved yet
        self._log_id = ""
        self._failures = self._absences = 0

    def run(self) -> None:
        """Runs until the end of the tool."""
        going = True
        while going:
            try:
                going = self._step()
            except Exception as error:      # must end the tool, not only this thread
                self._tail.fail(error)
                return

    def _step(self) -> bool:
        """Reads once; whether to continue. Raises ToolError for permanent failures."""
        reader = self._reader
        try:
            if self._place is not None:
                reader.begin(self._place)
                self._place = None
            piece = reader.read(2**62, round(WAIT_S * 1000))
        except Unreachable as error:
            if not self._failures:
                self._tail.warn(f"{error}; retrying")
            self._failures += 1
            return self._tail.pause(BACKOFF.pause(self._failures))
        except NoName:
            # Not created yet, or deleted.
            self._absences += 1
            if self._log_id:
                self._again("was deleted")
            elif self._place is None:
                self._place = Place(BEGINNING)
            return self._tail.pause(ABSENT.pause(self._absences))
        except Removed as error:
            self._tail.warn(f"{error}; continuing there")
            reader.offset = error.first
            return True
        except Beyond:
            if not self._log_id:
                raise
            return self._again("was deleted and created again")
        self._answered()
        if self._log_id and piece.log_id not in ("", self._log_id):
            return self._again("was deleted and created again")
        self._log_id = piece.log_id or self._log_id
        if piece.damaged:
            self._tail.warn(f"{reader.place}: {piece.damaged} damaged messages before offset {piece.first} skipped")
        if piece.next > piece.first:
            self._tail.put(Arrived(self._topic, self._node, piece))
        return True

    def _answered(self) -> None:
        if self._failures:
            self._tail.warn(f"{self._node.http}: connected again")
        self._failures = self._absences = 0

    def _again(self, what: str) -> bool:
        """Restarts at the beginning of the new log."""
        self._tail.warn(f"{self._reader.place} {what}; continuing at its beginning")
        self._log_id, self._place = "", Place(BEGINNING)
        return True
