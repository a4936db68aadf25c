"""Where a topic keeps messages: memory and disk queue, or a log; and the flow to its channels. See the .pxd."""

from nsqc.broker.topic import Topic
from nsqc.store.log.names import SETTLED as SETTLED

def waiting(topic: Topic) -> int:
    """Count of unsettled messages in the topic's log."""

def unsettled(topic: Topic, offset: int) -> tuple[int, int] | None:
    """The first unsettled messages from an offset on: their first offset, and the one after the last. None: there are
    none."""

def settle(topic: Topic, offsets: list[int]) -> None:
    """Marks these messages, in ascending order, as settled. Broker.recorded() waits until the journal has it."""
