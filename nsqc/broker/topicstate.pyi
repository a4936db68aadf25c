from typing import final

from nsqc.broker.seams import ChannelOwner

@final
class OpenBatch:
    def __init__(self) -> None: ...

class TopicState(ChannelOwner): ...
