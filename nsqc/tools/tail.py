"""`nsqc tail`, and nsq_tail: messages of topics as lines on stdout."""

from __future__ import annotations

import json
import os
import select
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from nsqc.log.formats import visible_bytes, visible_json
from nsqc.options.option import Kind, Option
from nsqc.tools import running
from nsqc.tools.declare import CHANNEL_OPTION, FROM, OUTPUT, TCP_NODES, TOPICS, Tool, UsageError, Values, in_flight
from nsqc.wire.codecs import CODECS

if TYPE_CHECKING:
    from nsqc.tools.feed import Delivery, Feed
    from nsqc.tools.running import Stdout, Stop

PLACE = "nsqc tail"
warn = partial(running.print_error, PLACE)
WAIT_SECONDS = 60.0
MOST_UNWRITTEN = 4 << 20    # bytes; above this, nothing more is formatted
MAX_IN_FLIGHT = 2500


class Tail:
    """Prints a feed. count: messages to print, 0: endless. A message is finished once it is written."""

    def __init__(self, feed: Feed, out: Stdout, stop: Stop, text: Callable[[Delivery, int], bytes], count: int):
        self._feed, self._out, self._stop, self._text = feed, out, stop, text
        self._left = count
        self._endless = count == 0
        self._writing: deque[Delivery] = deque()    # being written, finished together afterwards
        self._arrived: deque[Delivery] = deque()    # not formatted yet
        self._watching = False

    def run(self) -> None:
        """Runs until a signal or the last message. Raises PipeClosed, OSError, ToolError, ClientError."""
        self._feed.watch(self._out.fileno(), select.POLLERR)
        while not self._stop and (self._endless or self._left or self._writing):
            self._arrived.extend(self._feed.receive(WAIT_SECONDS))
            self._out.check()
            self._flush()
            while self._arrived and self._out.unwritten < MOST_UNWRITTEN and (self._endless or self._left):
                self._print(self._arrived.popleft())
        self._flush()

    def _print(self, delivery: Delivery) -> None:
        count = delivery.batch.count
        if self._endless or count <= self._left:
            self._left -= count
            if not self._endless:
                # Before the FINs, which would trigger more deliveries than needed.
                self._feed.limit(self._left)
            self._writing.append(delivery)
            self._out.put(self._text(delivery, count))
            self._flush()
            return
        # More than requested: the others are requeued at once, for other consumers.
        kept, self._left = self._left, 0
        self._feed.limit(0)
        self._out.put(self._text(delivery, kept))
        while not self._out.flush() and not self._stop:
            self._feed.watch(self._out.fileno(), select.POLLOUT)
            self._arrived.extend(self._feed.receive(WAIT_SECONDS))
        self._finish_written()
        if self._out.unwritten == 0:
            first, _ = self._feed.split(delivery, kept)
            self._feed.finish(first)

    def _flush(self) -> None:
        written = self._out.flush()
        if written:
            self._finish_written()
        if written == self._watching:
            self._feed.watch(self._out.fileno(), select.POLLERR if written else select.POLLOUT)
            self._watching = not written

    def _finish_written(self) -> None:
        if self._out.unwritten == 0:
            while self._writing:
                self._feed.finish(self._writing.popleft())


def as_lines(prefix: bool, is_terminal: bool) -> Callable[[Delivery, int], bytes]:
    """Bodies, each with a newline: verbatim, but on a terminal without control characters. prefix: the topic before
    each."""
    from nsqc.tools.lines import lines

    def text(delivery: Delivery, count: int) -> bytes:
        batch = delivery.batch
        head = f"{delivery.topic} | ".encode() if prefix else b""
        found = lines(batch.bodies, batch.offsets, 0, count, head, b"\n")
        return visible_bytes(found) if is_terminal else found

    return text


def as_json(delivery: Delivery, count: int) -> bytes:
    """An object per message. A body that is not UTF-8 is given as base64."""
    from nsqc.tools.logtail import body_of

    batch = delivery.batch
    bodies, offsets = bytes(batch.bodies), memoryview(batch.offsets).cast("B").cast("i")
    ids, times = bytes(batch.ids), memoryview(batch.timestamps).cast("B").cast("q")
    attempts = memoryview(batch.attempts).cast("B").cast("i")
    found = []
    for row in range(count):
        body = bodies[offsets[row]:offsets[row + 1]]
        found.append(json.dumps({
            "topic": delivery.topic, "nsqd": delivery.source.peer.address,
            "id": ids[row * 16:row * 16 + 16].decode(errors="backslashreplace"), "timestamp": times[row],
            "attempts": attempts[row], **body_of(body)}, ensure_ascii=False))
    return visible_json("\n".join([*found, ""])).encode()


def run(values: Values) -> int:
    """`nsqc tail`."""
    topics = tuple(dict.fromkeys(values.texts("TOPIC")))
    if values.given("from"):
        return run_log(values, topics)
    from nsqc.client.options import Options
    from nsqc.tools.cluster import Cluster
    from nsqc.tools.feed import Feed, check_topics
    from nsqc.tools.running import Stdout, Stop

    cluster = Cluster(values, PLACE)
    options = Options("tail", (), cluster.timeout, cluster.connection_options())
    count = values.number("count")
    most = min(values.number("max-in-flight"), count or MAX_IN_FLIGHT * 1000)
    channel = values.text("channel") or ephemeral_channel()
    if not values.flag("wait"):
        check_topics(cluster, topics)
    text = as_json if values.flag("json") else as_lines(values.flag("print-topic"), running.is_terminal())
    with Stop() as stop, Feed(cluster, topics, channel, most, options, stop, warn) as feed:
        feed.start()
        Tail(feed, Stdout(), stop, text, count).run()
        return stop.code(terminated=0)


def run_log(values: Values, topics: tuple[str, ...]) -> int:
    """`nsqc tail --from`."""
    for name in ("channel", "max-in-flight", "auth-secret", *CODECS):
        if values.given(name):
            raise UsageError(f"--from reads the log itself, over HTTP: it excludes --{name}", PLACE)
    from nsqc.options.places import parse_place
    from nsqc.tools.cluster import Cluster
    from nsqc.tools.logtail import LogTail, as_json, as_lines
    from nsqc.tools.running import Stop

    form = (as_json("nsqd", lambda node: node.tcp) if values.flag("json")
            else as_lines(values.flag("print-topic"), running.is_terminal()))
    with Stop() as stop:
        cluster, place = Cluster(values, PLACE), parse_place(values.text("from"))
        tail = LogTail(cluster, place, stop, form, values.number("count"), warn)
        for topic in topics:
            tail.start(topic, values.flag("wait"))
        tail.run()
        return stop.code(terminated=0)


def ephemeral_channel() -> str:
    """A private channel, deleted with its consumer."""
    return f"tail{int.from_bytes(os.urandom(4), 'big') % 1_000_000:06d}#ephemeral"


TOOL = Tool(
    ("tail",), "Print the messages of topics as they arrive, one per line.", run,
    options=(
        CHANNEL_OPTION._replace(help="the channel to consume; default: a temporary one, which takes "
                                     "no messages from others"),
        FROM._replace(help="start at this place of log-backed topics, without a channel: beginning, end, "
                           "an offset, a time in RFC 3339, or an age such as 1h or 7d"),
        Option("count", "stop after this many messages, over all topics; 0: never", Kind.INT, 0, least=0, short="n"),
        in_flight(MAX_IN_FLIGHT),
        Option("wait", "also accept topics that do not exist yet, which nsqd then creates", Kind.BOOL, False),
        Option("print-topic", "print the topic before each message", Kind.BOOL, False, OUTPUT),
        Option("json", "print an object per message, with topic, id, time and attempts", Kind.BOOL, False, OUTPUT),
        *TCP_NODES),
    arguments=(TOPICS,),
    text="""Bodies are written verbatim; on a terminal, control characters are shown as escapes. A message is finished
         when stdout has accepted it; messages received but not written are requeued at the end. If the reader is slow,
         nsqd keeps the rest: the tool holds at most --max-in-flight messages of each topic, and about 64 MB.

         With --from the log of each topic is read by offset, over HTTP, and no message is finished or moved. The tool
         then follows new messages, and after a broken connection continues where it stopped. The nodes have to be
         nsqc's.""",
    examples=(
        ("nsqc tail orders", "new messages of the local daemon"),
        ("nsqc tail orders -n 10 --json", "ten messages with all their fields"),
        ("nsqc tail orders refunds --print-topic --nsqlookupd lookup:4161 | grep -v test",
         "two topics from all nodes that have them"),
        ("nsqc tail orders --channel debug > orders.txt",
         "a permanent channel, which queues messages between runs"),
        ("nsqc tail orders --from -1h", "the last hour of a log-backed topic, and new messages")))
