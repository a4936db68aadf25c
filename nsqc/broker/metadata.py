"""nsqd.dat: which topics and channels there are, and which are paused. Read at the start, written on every change.

Beside it lies a second copy of the last good state, nsqd.dat.last, which nsqd ignores: from that and from the names of
queue files an empty or half-written nsqd.dat is rebuilt. What has messages on disk and is not in nsqd.dat was new when
the daemon was killed, and is added.

The text is kept in pieces, one for each topic, so that a change costs what it touches: on the loop the topic's piece is
made again, and a worker joins them.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any

import msgspec

from nsqc import NSQD_VERSION
from nsqc.store.badfiles import set_aside
from nsqc.store.disk.index import Index
from nsqc.store.files import read_file, replace_file
from nsqc.wire.names import is_valid_name

FILE_NAME = "nsqd.dat"
COPY_NAME = "nsqd.dat.last"
LEFTOVER = re.compile(r"^(?:nsqd\.dat(?:\.last)?|nsqc\.(?:ids\.)?dat)\.\d+\.tmp$")
SLICE_S = 0.002  # of making pieces, before the loop goes on with other things

TRUTH = {False: b"false", True: b"true"}


class MetadataError(Exception):
    """nsqd.dat cannot be read, and there is nothing to rebuild it from."""


class ChannelMetadata(msgspec.Struct, gc=False):
    """A channel in nsqd.dat."""

    name: str
    paused: bool = False


class TopicMetadata(msgspec.Struct, gc=False):
    """A topic in nsqd.dat; no channels are null there."""

    name: str
    paused: bool = False
    channels: list[ChannelMetadata] | None = None


class Metadata(msgspec.Struct, gc=False):
    """The whole of nsqd.dat; no topics are null there."""

    topics: list[TopicMetadata] | None = None
    version: str = NSQD_VERSION


# ---------------------------------------------------------------------- reading


def load(data_path: str, index: Index, log: Any) -> Metadata:
    """What nsqd.dat says, and what else there are messages of; rebuilt where it is damaged. Raises MetadataError."""
    for name in filter(LEFTOVER.match, index.temporaries):
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(data_path, name))
    found = read(data_path, index, log)
    added = add_queues(found, index.names(with_messages=True))
    if added:
        log.warn("NSQ: was killed before %s said that there are: %s", FILE_NAME, ", ".join(added))
    return found


def read(data_path: str, index: Index, log: Any) -> Metadata:
    """nsqd.dat, rebuilt where it is damaged. Raises MetadataError."""
    path = os.path.join(data_path, FILE_NAME)
    try:
        data = read_file(path)
    except FileNotFoundError:
        return Metadata()
    except OSError as error:
        raise MetadataError(f"failed to read metadata from {path} - {error.strerror}") from None
    try:
        return msgspec.json.decode(data, type=Metadata)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        reason = error
    found = salvage(data, log)
    if found is not None:
        kept = set_aside(path)
        log.error("NSQ: %s is damaged (%s): kept as %s, what can be understood is restored", path, reason, kept)
        return found
    found = rebuild(data_path, index)
    if found is None:
        raise MetadataError(f"failed to parse metadata in {path} - {reason}")
    kept = set_aside(path)
    log.error("NSQ: %s is damaged (%s): kept as %s, %d topics rebuilt from %s and the queue files",
              path, reason, kept, len(found.topics or ()), COPY_NAME)
    return found


def salvage(data: bytes, log: Any) -> Metadata | None:
    """What can be understood of JSON that has something wrong in it; the rest is reported. None: it is no such JSON.

    Bytes and escapes that are no text become characters that no name may have.
    """
    import json  # msgspec, which reads a sound file, takes no such thing

    try:
        whole = json.loads(data.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError):
        return None
    topics = whole.get("topics") if isinstance(whole, dict) else None
    if not isinstance(topics, list):
        return None
    found = Metadata([])
    for entry in topics:
        name, paused = understood(entry, "topic", log)
        if name:
            topic = TopicMetadata(name, paused)
            channels = entry.get("channels")
            pairs = [understood(one, f"channel of topic {name}", log)
                     for one in (channels if isinstance(channels, list) else ())]
            topic.channels = [ChannelMetadata(*pair) for pair in pairs if pair[0]] or None
            found.topics.append(topic)
    return found


def understood(entry: Any, what: str, log: Any) -> tuple[str, bool]:
    """Name and pause of an entry; an empty name where it has none that is valid, which is reported."""
    name = entry.get("name") if isinstance(entry, dict) else None
    if not isinstance(name, str) or not is_name(name):
        log.error("NSQ: %s: an entry is ignored, it names no %s: %.200r", FILE_NAME, what, entry)
        return "", False
    return name, entry.get("paused") is True


def is_name(text: str) -> bool:
    """Whether that can be the name of a topic or channel."""
    return text.isascii() and is_valid_name(text.encode())


def rebuild(data_path: str, index: Index) -> Metadata | None:
    """The last good copy, and whatever has queue files; None where there is neither."""
    try:
        found = msgspec.json.decode(read_file(os.path.join(data_path, COPY_NAME)), type=Metadata)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        found = None
    queues = index.names(with_messages=False)
    if found is None and not queues:
        return None
    found = found or Metadata()
    add_queues(found, queues)
    return found


def add_queues(metadata: Metadata, queues: Iterable[str]) -> list[str]:
    """Adds the topics and channels that have these queues; the names of those that were not there."""
    topics = {topic.name: topic for topic in metadata.topics or ()}
    known = {f"{name}:{channel.name}" for name, topic in topics.items() for channel in topic.channels or ()}
    added = []
    for queue in queues:
        name, mark, channel = queue.partition(":")
        if not is_name(name) or (mark and not is_name(channel)):
            continue
        if name not in topics:
            topics[name] = TopicMetadata(name)
            added.append(name)
        if mark and queue not in known:
            topics[name].channels = topics[name].channels or []
            topics[name].channels.append(ChannelMetadata(channel))
            added.append(queue)
    metadata.topics = list(topics.values()) or None
    return added


def restore(broker: Any, metadata: Metadata, log: Any) -> None:
    """Makes the topics and channels, none of them started."""
    for saved in metadata.topics or ():
        name = saved.name.encode()
        if not is_valid_name(name):
            log.warn("skipping creation of invalid topic %s", saved.name)
            continue
        topic = broker.get_topic(name, True)
        if saved.paused:
            topic.pause()
        for kept in saved.channels or ():
            if not is_valid_name(kept.name.encode()):
                log.warn("skipping creation of invalid channel %s", kept.name)
                continue
            channel = topic.get_channel(kept.name.encode())
            if kept.paused:
                channel.pause()


# ---------------------------------------------------------------------- writing


def piece(topic: Any) -> bytes:
    """A topic in nsqd.dat, without its ephemeral channels; names have no characters that JSON escapes."""
    channels = [b'{"name":"%b","paused":%b}' % (channel.name, TRUTH[channel.paused])
                for channel in topic.channels.values() if not channel.ephemeral]
    listed = b"[%b]" % b",".join(channels) if channels else b"null"
    return b'{"name":"%b","paused":%b,"channels":%b}' % (topic.name, TRUTH[topic.paused], listed)


def text(pieces: list[bytes]) -> bytes:
    """The file."""
    topics = b"[%b]" % b",".join(pieces) if pieces else b"null"
    return b'{"topics":%b,"version":%b}' % (topics, msgspec.json.encode(NSQD_VERSION))


def write(data_path: str, pieces: list[bytes]) -> None:
    """Replaces nsqd.dat and its copy, both durably. Raises OSError."""
    data = text(pieces)
    replace_file(os.path.join(data_path, FILE_NAME), data)
    replace_file(os.path.join(data_path, COPY_NAME), data)


def lies_there(path: str, data: bytes) -> bool:
    """Whether a file has this and nothing else."""
    try:
        return read_file(path) == data
    except OSError:
        return False


class MetadataWriter:
    """Writes nsqd.dat on a worker thread, one writing at a time; changes meanwhile share the next one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, workers: Executor, data_path: str, broker: Any, log: Any):
        self._loop = loop
        self._workers = workers
        self._data_path = data_path
        self._broker = broker
        self._log = log
        self._pieces: dict[bytes, bytes] = {}  # by topic, in the order of the broker; ephemeral ones are left out
        self._changed: OrderedDict[bytes, None] = OrderedDict()  # topics whose pieces are old
        self._running: asyncio.Future[None] | None = None
        self._next: asyncio.Future[None] | None = None

    def on_event(self, event: str, topic: Any, channel: Any) -> None:
        """A listener of the broker: every lasting topic or channel that comes or goes is written."""
        if not (channel or topic).ephemeral:
            self.save(topic)

    def save(self, topic: Any) -> asyncio.Future[None]:
        """Done once what this topic is now is on disk; carries the OSError where it cannot be written."""
        self._changed[topic.name] = None
        if self._running is None:
            self._running = self._start(self._loop.create_future())
            return self._running
        if self._next is None:
            self._next = self._loop.create_future()
        return self._next

    def write_all(self) -> None:
        """Writes here and now, for the stop. Raises OSError."""
        self._renew_all()
        write(self._data_path, list(self._pieces.values()))

    def write_missing(self) -> None:
        """Writes here and now what does not lie there already, for the start. Raises OSError.

        Syncs take their time, above all on a busy disk. The copy of a file without topics stands for nothing to lose.
        """
        self._renew_all()
        data = text(list(self._pieces.values()))
        for name, durable in ((FILE_NAME, True), (COPY_NAME, bool(self._pieces))):
            path = os.path.join(self._data_path, name)
            if not lies_there(path, data):
                replace_file(path, data, durable)

    def _renew_all(self) -> None:
        self._changed.update(dict.fromkeys(self._broker.topics))
        self._renew()

    async def finish(self) -> None:
        """Waits for what is being written."""
        while self._running is not None:
            await asyncio.wait([self._running])

    def _start(self, promise: asyncio.Future[None]) -> asyncio.Future[None]:
        """Changes of the same loop iteration still come along."""
        self._loop.call_soon(self._collect, promise)
        return promise

    def _collect(self, promise: asyncio.Future[None]) -> None:
        if self._renew(time.monotonic() + SLICE_S):
            self._loop.call_soon(self._collect, promise)
            return
        self._log.info("NSQ: persisting topic/channel metadata to %s", os.path.join(self._data_path, FILE_NAME))
        job = self._loop.run_in_executor(self._workers, write, self._data_path, list(self._pieces.values()))
        job.add_done_callback(lambda done: self._written(done, promise))

    def _renew(self, deadline: float | None = None) -> bool:
        """Makes pieces again, until a time; whether there are more to make."""
        topics, pieces = self._broker.topics, self._pieces
        while self._changed:
            name, _ = self._changed.popitem(last=False)
            topic = topics.get(name)
            if topic is None:
                pieces.pop(name, None)
            elif not topic.ephemeral:
                pieces[name] = piece(topic)
            if deadline is not None and time.monotonic() > deadline:
                return bool(self._changed)
        return False

    def _written(self, done: asyncio.Future[None], promise: asyncio.Future[None]) -> None:
        error = done.exception()
        if error is not None:
            self._log.error("failed to persist metadata - %s", error)
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
            promise.exception()  # most callers only look at the log
