from typing import final

from nsqc.wire.codec import Codec

@final
class Deflate(Codec):
    def __init__(self, level: int) -> None: ...
