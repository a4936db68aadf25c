from nsqc.broker.topic import Topic
from nsqc.store.log.names import SETTLED as SETTLED

def waiting(topic: Topic) -> int:
    """How many messages of the topic's log are not settled."""

def unsettled(topic: Topic, offset: int) -> tuple[int, int] | None:
    """The first messages from an offset on that are not settled: their first offset, and the one after the last. None:
    there are none."""

def settle(topic: Topic, offsets: list[int]) -> None:
    """These messages, in ascending order, are settled. Broker.recorded() waits until the journal has it."""
