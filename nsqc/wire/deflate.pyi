from typing import final

from nsqc.wire.codec import Codec

@final
class Deflate(Codec):
    """level is 1 to 9."""

    def __init__(self, level: int) -> None: ...
