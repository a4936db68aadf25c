from typing import final

from nsqc.broker.channel import Channel

@final
class Search:
    """Finds a deferred message in a channel's memory, and cancels it."""

    def __init__(self, channel: Channel, message_id: bytes) -> None: ...
    def step(self) -> bool | None:
        """Searches until the slice is over: whether it was found; None: not known yet."""

def take_logged(channel: Channel, offset: int) -> bool: ...
def is_on_disk(channel: Channel, message_id: bytes) -> bool: ...
