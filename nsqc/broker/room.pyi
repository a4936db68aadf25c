from collections.abc import Callable
from typing import final

from nsqc.broker.topicstate import TopicState

@final
class Room:
    """The publish that was refused last, waiting for room. Calls call() when there is some, or at until_ns (monotonic).
    """

    def __init__(self, topic: TopicState, until_ns: int, call: Callable[[], object]) -> None: ...
    def leave(self) -> None:
        """Stops waiting."""

def helps(topic: TopicState, full: bool) -> bool:
    """Whether the last refused publish, with FULL or NO_SPACE, may succeed once messages have left."""
