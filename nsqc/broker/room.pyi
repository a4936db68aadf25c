from collections.abc import Callable
from typing import final

from nsqc.broker.topicstate import TopicState

@final
class Room:
    """A publish that was refused last and waits for room. Calls call() when there is some, or at until_ns (monotonic).
    """

    def __init__(self, topic: TopicState, until_ns: int, call: Callable[[], object]) -> None: ...
    def leave(self) -> None:
        """It waits no longer."""

def helps(topic: TopicState, full: bool) -> bool:
    """Whether the publish that was refused last, with FULL or NO_SPACE, may be accepted once messages have left."""
