"""nsqd.dat: which topics and channels exist, and which are paused. Read at the start, written on every change.

nsqd.dat.last, a copy of the last good state, is kept next to it; nsqd ignores that. An empty or half-written nsqd.dat
is rebuilt from the copy and from the names of queue files. A queue with messages on disk that is missing in nsqd.dat
was new when the daemon was killed; it is added.

The text is kept in pieces, one per topic, so a change is cheap: the loop rebuilds the topic's piece, and a worker joins
them.
"""

from __future__ import annotations

import asyncio
import os
import re
import reprlib
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial

import msgspec

from nsqc import NSQD_VERSION
from nsqc.broker.broker import Broker
from nsqc.broker.channel import Channel
from nsqc.broker.topic import Topic
from nsqc.log import Log
from nsqc.store.disk.recovery import Index
from nsqc.store.files import (
    METADATA,
    MetadataError,
    Saved,
    SavedChannel,
    SavedTopic,
    decode_saved,
    read_edited_file,
    read_file,
    replace_file,
    set_aside,
)
from nsqc.wire.outside import JSONError, decode
from nsqc.wire.parser import is_valid_name

COPY_NAME = "nsqd.dat.last"
LEFTOVER = re.compile(r"^(?:nsqd\.dat(?:\.last)?|nsqc\.(?:ids\.)?dat|nsqc\.rules\.json)\.\d+\.tmp$")
RETRY_S = 1.0  # after a failed write

BOOLEANS = {False: b"false", True: b"true"}


# ---------------------------------------------------------------------- reading


def load(data_path: str, index: Index, logs: Iterable[str], log: Log) -> Saved:
    """nsqd.dat, rebuilt if it is damaged, plus queues with messages that it lacks. logs: topics that have a log.
    Raises MetadataError."""
    for name in filter(LEFTOVER.match, index.temporaries):
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(data_path, name))
    metadata = read(data_path, index, log)
    added = add_queues(metadata, [*index.names(with_messages=True), *logs])
    if added:
        log.warn("NSQ: was killed before it could add these to %s: %s", METADATA, ", ".join(added))
    return metadata


def read(data_path: str, index: Index, log: Log) -> Saved:
    """nsqd.dat, rebuilt if it is damaged. Raises MetadataError."""
    path = os.path.join(data_path, METADATA)
    try:
        data = read_edited_file(path)
    except FileNotFoundError:
        return Saved()
    except OSError as error:
        raise MetadataError(f"failed to read metadata from {path} - {error.strerror}") from None
    try:
        return decode_saved(data)
    except JSONError as error:
        reason = error
    salvaged = salvage(data, log)
    if salvaged is not None:
        backup = set_aside(path)
        log.error("NSQ: %s is damaged (%s): kept as %s, the readable part is restored", path, reason, backup)
        return salvaged
    rebuilt = rebuild(data_path, index)
    if rebuilt is None:
        raise MetadataError(f"failed to parse metadata in {path} - {reason}")
    backup = set_aside(path)
    log.error("NSQ: %s is damaged (%s): kept as %s, %d topics rebuilt from %s and the queue files",
              path, reason, backup, len(rebuilt.topics or ()), COPY_NAME)
    return rebuilt


def salvage(data: bytes, log: Log) -> Saved | None:
    """The valid entries of partly invalid JSON; the others are reported. None: not such JSON at all.

    Bytes and escapes that are not text become characters that names cannot contain.
    """
    try:
        document = decode(data.decode("utf-8", "replace"), strict=False)
    except JSONError:
        return None
    entries = document.get("topics") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        return None
    topics = []
    for entry in entries:
        name, paused = name_and_pause(entry, "topic", log)
        if name:
            channels = entry.get("channels")
            pairs = [name_and_pause(channel, f"channel of topic {name}", log)
                     for channel in (channels if isinstance(channels, list) else ())]
            topics.append(SavedTopic(name, paused, [SavedChannel(*pair) for pair in pairs if pair[0]] or None))
    return Saved(topics)


def name_and_pause(entry: object, kind: str, log: Log) -> tuple[str, bool]:
    """Of a topic or channel; the name is empty, and reported, if invalid."""
    fields = entry if isinstance(entry, dict) else {}
    name = fields.get("name")
    if not isinstance(name, str) or not is_name(name):
        log.error("NSQ: %s: an entry is ignored, it names no %s: %s", METADATA, kind, reprlib.repr(entry))
        return "", False
    return name, fields.get("paused") is True


def is_name(text: str) -> bool:
    """Whether this is a valid topic or channel name."""
    return text.isascii() and is_valid_name(text.encode())


def rebuild(data_path: str, index: Index) -> Saved | None:
    """The last good copy, plus everything with queue files; None if neither exists."""
    queues = index.names(with_messages=False)
    try:
        metadata = decode_saved(read_file(os.path.join(data_path, COPY_NAME)))
    except (OSError, JSONError):
        if not queues:
            return None
        metadata = Saved()
    add_queues(metadata, queues)
    return metadata


def add_queues(metadata: Saved, queues: Iterable[str]) -> list[str]:
    """Adds the topics and channels of these queues; returns the names of the missing ones."""
    topics = {topic.name: topic for topic in metadata.topics or ()}
    known = {f"{name}:{channel.name}" for name, topic in topics.items() for channel in topic.channels or ()}
    added = []
    for queue in queues:
        name, mark, channel = queue.partition(":")
        if not is_name(name) or (mark and not is_name(channel)):
            continue
        if name not in topics:
            topics[name] = SavedTopic(name)
            added.append(name)
        if mark and queue not in known:
            topics[name].channels = [*(topics[name].channels or ()), SavedChannel(channel)]
            added.append(queue)
    metadata.topics = list(topics.values()) or None
    return added


def topics_in(data: bytes) -> set[str]:
    """The topics in the bytes of nsqd.dat. Raises JSONError."""
    return {topic.name for topic in decode_saved(data).topics or ()}


def restore(broker: Broker, metadata: Saved, log: Log) -> None:
    """Creates the topics and channels; the topics are not started."""
    for saved in metadata.topics or ():
        name = saved.name.encode()
        if not is_valid_name(name):
            log.warn("skipping creation of invalid topic %s", saved.name)
            continue
        topic = broker.get_topic(name, True)
        if saved.paused:
            topic.pause()
        for saved_channel in saved.channels or ():
            if not is_valid_name(saved_channel.name.encode()):
                log.warn("skipping creation of invalid channel %s", saved_channel.name)
                continue
            channel = topic.get_channel(saved_channel.name.encode())
            if saved_channel.paused:
                channel.pause()
    if broker.topics:
        log.info("NSQ: loaded %d topics with %d channels", len(broker.topics),
                 sum(len(topic.channels) for topic in broker.topics.values()))


# ---------------------------------------------------------------------- writing


def piece(topic: Topic) -> bytes:
    """A topic in nsqd.dat, without its ephemeral channels; names contain nothing that JSON escapes."""
    channels = [b'{"name":"%b","paused":%b}' % (channel.name, BOOLEANS[channel.paused])
                for channel in topic.channels.values() if not channel.ephemeral]
    listed = b"[%b]" % b",".join(channels) if channels else b"null"
    return b'{"name":"%b","paused":%b,"channels":%b}' % (topic.name, BOOLEANS[topic.paused], listed)


def text(pieces: list[bytes]) -> bytes:
    """The contents of the file."""
    topics = b"[%b]" % b",".join(pieces) if pieces else b"null"
    return b'{"topics":%b,"version":%b}' % (topics, msgspec.json.encode(NSQD_VERSION))


def write(data_path: str, pieces: list[bytes]) -> None:
    """Replaces nsqd.dat and its copy, both durably. Raises OSError."""
    data = text(pieces)
    replace_file(os.path.join(data_path, METADATA), data)
    replace_file(os.path.join(data_path, COPY_NAME), data)


def has_content(path: str, data: bytes) -> bool:
    """Whether the file contains exactly these bytes."""
    try:
        return read_file(path) == data
    except OSError:
        return False


class MetadataWriter:
    """Writes nsqd.dat on a worker thread, never twice at once; changes made meanwhile share the next write."""

    def __init__(self, loop: asyncio.AbstractEventLoop, workers: Executor, data_path: str, broker: Broker, log: Log):
        self._loop = loop
        self._workers = workers
        self._data_path = data_path
        self._broker = broker
        self._log = log
        self._pieces: dict[bytes, bytes] = {}  # by topic, in the order of the broker; without ephemeral ones
        self._changed: OrderedDict[bytes, None] = OrderedDict()  # topics with stale pieces
        self._running: asyncio.Future[None] | None = None
        self._next: asyncio.Future[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._finished = False
        self.written: Callable[[], object] = lambda: None   # called after each write

    def on_event(self, event: str, topic: Topic, channel: Channel | None) -> None:
        """Broker listener: saves after a topic or channel is created or deleted, unless it is ephemeral."""
        if not (channel or topic).ephemeral:
            self.save(topic)

    def save(self, topic: Topic) -> asyncio.Future[None]:
        """Done once the topic's current state is on disk; fails with the OSError if it cannot be written."""
        self._changed[topic.name] = None
        if self._running is None:
            self._running = self._start(self._loop.create_future())
            return self._running
        if self._next is None:
            self._next = self._loop.create_future()
        return self._next

    def write_all(self) -> None:
        """Writes at once, for a stop. Raises OSError."""
        self._renew_all()
        write(self._data_path, list(self._pieces.values()))

    def write_missing(self) -> None:
        """Writes each stale file at once, for the start. Raises OSError.

        Syncs take time, above all on a busy disk. A copy without topics protects nothing, so it is not synced.
        """
        self._renew_all()
        data = text(list(self._pieces.values()))
        for name, durable in ((METADATA, True), (COPY_NAME, bool(self._pieces))):
            path = os.path.join(self._data_path, name)
            if not has_content(path, data):
                replace_file(path, data, durable)

    def _renew_all(self) -> None:
        self._changed.update(dict.fromkeys(self._broker.topics))
        self._renew()

    async def finish(self) -> None:
        """Waits for running writes to end; does not retry failed ones."""
        self._finished = True
        while self._running is not None:
            await asyncio.wait([self._running])

    def _start(self, promise: asyncio.Future[None]) -> asyncio.Future[None]:
        """Waits for the end of the loop iteration, to include its other changes."""
        self._broker.slicer.call(partial(self._collect, promise))
        return promise

    def _collect(self, promise: asyncio.Future[None]) -> bool:
        """Runs a slice; returns whether work remains."""
        if self._renew(in_slices=True):
            return True
        self._log.info("NSQ: persisting topic/channel metadata to %s", os.path.join(self._data_path, METADATA))
        job = self._loop.run_in_executor(self._workers, write, self._data_path, list(self._pieces.values()))
        job.add_done_callback(lambda done: self._written(done, promise))
        return False

    def _renew(self, in_slices: bool = False) -> bool:
        """Rebuilds the pieces of changed topics, all or until the slice is over; returns whether any remain."""
        topics, pieces = self._broker.topics, self._pieces
        while self._changed:
            name, _ = self._changed.popitem(last=False)
            topic = topics.get(name)
            if topic is None:
                pieces.pop(name, None)
            elif not topic.ephemeral:
                pieces[name] = piece(topic)
            if in_slices and self._broker.slicer.is_over():
                return bool(self._changed)
        return False

    def _again(self) -> None:
        self._retry = None
        if self._running is None and not self._finished:
            self._running = self._start(self._loop.create_future())

    def _written(self, done: asyncio.Future[None], promise: asyncio.Future[None]) -> None:
        error = done.exception()
        if error is not None:
            self._log.error("failed to persist metadata - %s", error)
            if self._retry is None and not self._finished:
                self._retry = self._loop.call_later(RETRY_S, self._again)
        else:
            self.written()
        self._running, waiting = None, self._next
        if waiting is not None:
            self._next = None
            self._running = self._start(waiting)
        if promise.done():
            return
        if error is None:
            promise.set_result(None)
        else:
            promise.set_exception(error)
            promise.exception()  # most callers rely on the log
