from typing import final

from nsqc.broker.channel import Channel

@final
class Search:
    """Looks for a deferred message that a channel has in memory, and takes it away."""

    def __init__(self, channel: Channel, message_id: bytes) -> None: ...
    def step(self) -> bool | None:
        """Until the slice is over: whether it was there; None: not known yet."""

def take_logged(channel: Channel, offset: int) -> bool: ...
def is_on_disk(channel: Channel, message_id: bytes) -> bool: ...
