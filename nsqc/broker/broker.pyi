from asyncio import AbstractEventLoop, Future
from collections.abc import Awaitable, Iterator
from typing import final

from nsqc.broker.channel import Channel
from nsqc.broker.health import WriteHealth
from nsqc.broker.protocols import (
    BrokerSettings,
    ChannelTimers,
    Delays,
    MetadataSaver,
    TopicListener,
    TopicRules,
    TopicStarter,
)
from nsqc.broker.seams import TopicOwner
from nsqc.broker.topic import Topic
from nsqc.log import Log
from nsqc.store.backlog import CommitSchedule
from nsqc.store.disk.manager import DiskQueues
from nsqc.store.guid import GuidFactory
from nsqc.store.log.manager import Logs
from nsqc.store.slices import Slicer
from nsqc.store.space import DiskSpace

TOPIC_CREATED: str
TOPIC_DELETED: str
CHANNEL_CREATED: str
CHANNEL_DELETED: str

@final
class Broker(TopicOwner):
    starter: TopicStarter | None
    saver: MetadataSaver
    def __init__(self, settings: BrokerSettings, log: Log, timers: ChannelTimers, disks: DiskQueues,
                 write_health: WriteHealth, guids: GuidFactory, loop: AbstractEventLoop | None = None,
                 rules: TopicRules | None = None, space: DiskSpace | None = None,
                 logs: Logs | None = None) -> None: ...
    @property
    def topics(self) -> dict[bytes, Topic]: ...
    @property
    def watched(self) -> dict[bytes, Topic]: ...
    @property
    def listeners(self) -> list[TopicListener]: ...
    @property
    def commits(self) -> CommitSchedule: ...
    @property
    def space(self) -> DiskSpace: ...
    @property
    def slicer(self) -> Slicer: ...
    def topic(self, name: bytes) -> Topic | None: ...
    def get_topic(self, name: bytes, loading: bool = False) -> Topic: ...
    def delete_topic(self, name: bytes) -> bool: ...
    def emptied(self, queue: Topic | Channel) -> Awaitable[None]: ...
    async def recorded(self, topic: Topic) -> None: ...
    def removed(self) -> Awaitable[None]: ...
    def rule_changed(self, name: bytes | None) -> Iterator[None]: ...
    def retain(self) -> Iterator[None]: ...
    def save_metadata(self, topic: Topic) -> Future[None]: ...
    def health(self) -> str: ...
    def close(self) -> tuple[Delays, int]: ...
