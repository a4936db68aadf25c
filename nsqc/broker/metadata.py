"""nsqd.dat: which topics and channels there are, and which are paused. Read at the start, written on every change.

Beside it lies a second copy of the last good state, nsqd.dat.last, which nsqd ignores: from that and from the names of
queue files an empty or half-written nsqd.dat is rebuilt. What has messages on disk and is not in nsqd.dat was new when
the daemon was killed, and is added.
"""

from __future__ import annotations

import asyncio
import os
import re
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import msgspec

from nsqc import NSQD_VERSION
from nsqc.broker.files import replace_file
from nsqc.wire.names import is_valid_name

FILE_NAME = "nsqd.dat"
COPY_NAME = "nsqd.dat.last"
BAD_NAME = "nsqd.dat.bad"
QUEUE_FILE = re.compile(r"^(?P<topic>[^:]+?)(?::(?P<channel>.+?))?\.diskqueue\.(?:meta|(?P<number>\d{6,}))\.dat$")
LEFTOVER = re.compile(r"^nsqd\.dat(?:\.last)?\.\d+\.tmp$")


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


def load(data_path: Path, log: Any) -> Metadata:
    """What nsqd.dat says, and what else there are messages of; rebuilt where it is damaged. Raises MetadataError."""
    for name in filter(LEFTOVER.match, os.listdir(data_path)):
        (data_path / name).unlink(missing_ok=True)
    found = read(data_path, log)
    added = add_queues(found, [queue for queue in queue_files(data_path)
                               if queue["number"] and (data_path / queue[0]).stat().st_size])
    if added:
        log.warn("NSQ: was killed before %s said that there are: %s", FILE_NAME, ", ".join(added))
    return found


def read(data_path: Path, log: Any) -> Metadata:
    """nsqd.dat, rebuilt where it is damaged. Raises MetadataError."""
    path = data_path / FILE_NAME
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Metadata()
    except OSError as error:
        raise MetadataError(f"failed to read metadata from {path} - {error.strerror}") from None
    try:
        return msgspec.json.decode(data, type=Metadata)
    except msgspec.DecodeError as error:
        rebuilt = rebuild(data_path)
        if rebuilt is None:
            raise MetadataError(f"failed to parse metadata in {path} - {error}") from None
        log.error("NSQ: %s is damaged (%s): kept as %s, %d topics rebuilt from %s and the queue files",
                  path, error, BAD_NAME, len(rebuilt.topics or ()), COPY_NAME)
        path.replace(data_path / BAD_NAME)
        return rebuilt


def rebuild(data_path: Path) -> Metadata | None:
    """The last good copy, and whatever has queue files; None where there is neither."""
    try:
        found = msgspec.json.decode((data_path / COPY_NAME).read_bytes(), type=Metadata)
    except (OSError, msgspec.DecodeError):
        found = None
    queues = queue_files(data_path)
    if found is None and not queues:
        return None
    found = found or Metadata()
    add_queues(found, queues)
    return found


def queue_files(data_path: Path) -> list[re.Match[str]]:
    """The files of disk queues, as QUEUE_FILE takes their names apart."""
    return sorted(filter(None, map(QUEUE_FILE.match, os.listdir(data_path))), key=lambda match: match[0])


def add_queues(metadata: Metadata, queues: list[re.Match[str]]) -> list[str]:
    """Adds the topics and channels that these files belong to; the names of those that were not there."""
    topics = {topic.name: topic for topic in metadata.topics or ()}
    added = []
    for queue in queues:
        name, channel = queue["topic"], queue["channel"]
        if name not in topics:
            topics[name] = TopicMetadata(name)
            added.append(name)
        if channel and all(channel != known.name for known in topics[name].channels or ()):
            topics[name].channels = [*(topics[name].channels or ()), ChannelMetadata(channel)]
            added.append(f"{name}:{channel}")
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


def snapshot(broker: Any) -> Metadata:
    """What is to be written now; ephemeral topics and channels are left out."""
    topics = [
        TopicMetadata(topic.name.decode(), topic.paused, [
            ChannelMetadata(channel.name.decode(), channel.paused)
            for channel in topic.channels.values() if not channel.ephemeral
        ] or None)
        for topic in broker.topics.values() if not topic.ephemeral
    ]
    return Metadata(topics or None)


def write(data_path: Path, metadata: Metadata) -> None:
    """Replaces nsqd.dat and its copy, both durably. Raises OSError."""
    data = msgspec.json.encode(metadata)
    replace_file(data_path / FILE_NAME, data)
    replace_file(data_path / COPY_NAME, data)


class MetadataWriter:
    """Writes nsqd.dat on a worker thread, one writing at a time; changes meanwhile share the next one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, workers: Executor, data_path: Path, broker: Any, log: Any):
        self._loop = loop
        self._workers = workers
        self._data_path = data_path
        self._broker = broker
        self._log = log
        self._running: asyncio.Future[None] | None = None
        self._next: asyncio.Future[None] | None = None

    def on_event(self, event: str, topic: Any, channel: Any) -> None:
        """A listener of the broker: every lasting topic or channel that comes or goes is written."""
        if not (channel or topic).ephemeral:
            self.save()

    def save(self) -> asyncio.Future[None]:
        """Done once the state of now is on disk; carries the OSError where it cannot be written."""
        if self._running is None:
            self._running = self._start(self._loop.create_future())
            return self._running
        if self._next is None:
            self._next = self._loop.create_future()
        return self._next

    async def finish(self) -> None:
        """Waits for what is being written."""
        while self._running is not None:
            await asyncio.wait([self._running])

    def _start(self, promise: asyncio.Future[None]) -> asyncio.Future[None]:
        self._log.info("NSQ: persisting topic/channel metadata to %s", self._data_path / FILE_NAME)
        job = self._loop.run_in_executor(self._workers, write, self._data_path, snapshot(self._broker))
        job.add_done_callback(lambda done: self._written(done, promise))
        return promise

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
