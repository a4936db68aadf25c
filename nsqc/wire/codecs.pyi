"""The codecs of compressed connections, by their names in IDENTIFY; the daemon and the client negotiate these.

A codec's library is loaded by the first connection that uses it. Snappy and logs share the CRC-32C.
"""

from collections.abc import Callable
from typing import final

# ====================================================================== codec

class CodecError(ValueError): ...

class Codec:
    @property
    def name(self) -> str: ...
    @property
    def ended(self) -> bool: ...
    @property
    def waiting(self) -> int: ...
    @property
    def truncated(self) -> bool: ...
    def put(self, data: bytes) -> None: ...
    def get(self) -> bytes: ...
    def pack(self, data: bytes) -> bytes: ...


# ====================================================================== snappy

@final
class Snappy(Codec):
    def __init__(self) -> None: ...


# ====================================================================== deflate

@final
class Deflate(Codec):
    def __init__(self, level: int) -> None: ...


# ---------------------------------------------------------------------- codecs

LIBRARIES: tuple[str, ...]
CODECS: dict[str, Callable[[int], Codec]]

def new_codec(name: str, level: int) -> Codec: ...
