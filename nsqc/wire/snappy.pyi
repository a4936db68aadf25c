from typing import final

from nsqc.wire.codec import Codec

@final
class Snappy(Codec):
    def __init__(self) -> None: ...
