from collections.abc import Awaitable
from typing import final

from nsqc.broker.broker import Broker
from nsqc.broker.channel import Channel
from nsqc.broker.topic import DRAINING as DRAINING
from nsqc.broker.topic import NO_SPACE as NO_SPACE
from nsqc.broker.topic import PENDING as PENDING
from nsqc.broker.topic import Topic

def put_again(broker: Broker, topic: Topic, channel: Channel, body: bytes) -> int:
    """Adds a message to one channel only, as a new one: with its own id and time, and no attempts.

    As Topic.publish(). Topic.when_written() says when it is on disk, where the channel has files.
    """

def synced(broker: Broker, channel: Channel) -> Awaitable[bool]:
    """Awaits that what was written for the channel so far survives a power failure, too. False: its disk has failed."""

@final
class Taken:
    def __init__(self, source: Channel) -> None:
        """Messages that wait in memory or in files of a channel, on their way to another one."""

    def move(self, broker: Broker, topic: Topic, channel: Channel, most: int) -> tuple[int, int]:
        """Takes messages, up to `most` and until the slice is over, and puts them into another channel, as put_again().

        Returns how many, and as put_again(). Then either finish() or give_back() has to follow.
        """

    def finish(self) -> None:
        """They are written where they went: they are finished where they came from."""

    def give_back(self) -> None:
        """They wait again where they came from."""
