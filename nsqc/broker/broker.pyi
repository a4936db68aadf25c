"""All topics by name, dead letters, redriving, cancelling. See the .pxd."""

from asyncio import AbstractEventLoop, Future
from collections.abc import Awaitable, Callable, Iterator
from typing import final

from nsqc.broker.channel import Channel, Consumer
from nsqc.broker.health import WriteHealth
from nsqc.broker.nsqc_dat import Delays
from nsqc.broker.stats import Timers
from nsqc.broker.topic import Topic
from nsqc.log import Log
from nsqc.options.declared import Settings
from nsqc.options.rules import ChannelRules, TopicRules
from nsqc.store.disk.manager import DiskQueues
from nsqc.store.log.manager import Logs
from nsqc.store.message import GuidFactory
from nsqc.store.work import CommitSchedule, DiskSpace, Slicer

# ====================================================================== broker

TOPIC_CREATED: str
TOPIC_DELETED: str
CHANNEL_CREATED: str
CHANNEL_DELETED: str

@final
class Broker:
    closing: bool
    draining: bool
    starter: Callable[[Topic], None] | None
    saver: Callable[[Topic], Future[None]]
    def __init__(self, settings: Settings, log: Log, timers: Timers, disks: DiskQueues,
                 write_health: WriteHealth, guids: GuidFactory, loop: AbstractEventLoop | None = None,
                 rules: TopicRules | None = None, space: DiskSpace | None = None,
                 logs: Logs | None = None, channel_rules: ChannelRules | None = None) -> None: ...
    @property
    def is_topology_aware(self) -> bool: ...
    @property
    def topics(self) -> dict[bytes, Topic]: ...
    @property
    def watched(self) -> dict[bytes, Topic]: ...
    @property
    def listeners(self) -> list[Callable[[str, Topic, Channel | None], None]]: ...
    @property
    def commits(self) -> CommitSchedule: ...
    @property
    def space(self) -> DiskSpace: ...
    @property
    def slicer(self) -> Slicer: ...
    folds_channels: bool
    @property
    def refusals(self) -> dict[str, int]: ...
    @property
    def creations_refused(self) -> dict[str, int]: ...
    @property
    def circling(self) -> set[Channel]: ...
    creations_delayed: int
    def refused(self, reason: str) -> None: ...
    def topic(self, name: bytes) -> Topic | None: ...
    def get_topic(self, name: bytes, loading: bool = False) -> Topic: ...
    def get_channel(self, topic: Topic, name: bytes, start: int | None = None) -> Channel: ...
    def delete_topic(self, name: bytes) -> bool: ...
    def emptied(self, queue: Topic | Channel) -> Awaitable[None]: ...
    async def recorded(self, topic: Topic) -> None: ...
    @property
    def logs(self) -> Logs | None: ...
    def removed(self) -> Awaitable[None]: ...
    def rule_changed(self, name: bytes | None) -> Iterator[None]: ...
    def channel_rule_changed(self, name: bytes | None) -> Iterator[None]: ...
    def retain(self) -> Iterator[None]: ...
    def save_metadata(self, topic: Topic) -> Future[None]: ...
    def halt(self, busy: list[Consumer]) -> Iterator[None]: ...
    def health(self) -> str: ...
    def close(self) -> tuple[Delays, int]: ...


# ====================================================================== redrive

def put_again(broker: Broker, topic: Topic, channel: Channel, body: bytes) -> int:
    """Adds a message to one channel only, as a new one: with its own id and time, and no attempts.

    Returns as Topic.publish(). Topic.when_written() reports when it is on disk, if the channel has files.
    """

def synced(broker: Broker, channel: Channel) -> Awaitable[bool]:
    """Awaits that the channel's writes so far survive a power failure, too. False: its disk failed."""

@final
class Taken:
    def __init__(self, source: Channel) -> None:
        """Messages from memory or files of a channel, being moved to another one."""

    def move(self, broker: Broker, topic: Topic, channel: Channel, most: int) -> tuple[int, int]:
        """Takes up to `most` messages, until the slice is over, and puts them into another channel, like put_again().

        Returns the count, and the result of put_again(). Call finish() or give_back() afterwards.
        """

    def finish(self) -> None:
        """They are written in the target: finishes them in the source."""

    def give_back(self) -> None:
        """Requeues them in the source."""


# ====================================================================== cancel

@final
class Search:
    """Finds a deferred message in a channel's memory, and cancels it."""

    def __init__(self, channel: Channel, message_id: bytes) -> None: ...
    def step(self) -> bool | None:
        """Searches until the slice is over: whether it was found; None: not known yet."""

def take_logged(channel: Channel, offset: int) -> bool: ...
def is_on_disk(channel: Channel, message_id: bytes) -> bool: ...
