from typing import final

from nsqc.wire.codec import Codec

@final
class Snappy(Codec):
    """Snappy's framing format."""

    def __init__(self) -> None: ...
