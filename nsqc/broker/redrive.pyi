from collections.abc import Awaitable
from typing import final

from nsqc.broker.broker import Broker
from nsqc.broker.channel import Channel
from nsqc.broker.topic import DRAINING as DRAINING
from nsqc.broker.topic import FULL as FULL
from nsqc.broker.topic import NO_SPACE as NO_SPACE
from nsqc.broker.topic import PENDING as PENDING
from nsqc.broker.topic import Topic

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
