"""The codecs of compressed connections, by their names in IDENTIFY; the daemon and the client negotiate these.

A codec's library is loaded by the first connection that uses it. Snappy and logs share the CRC-32C.
"""

from collections.abc import Callable
from typing import NamedTuple

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


# ---------------------------------------------------------------------- codecs

LIBRARIES: tuple[str, ...]
class CodecKind(NamedTuple):
    make: Callable[..., Codec]
    levels: int = 0
    level: int = 0

CODECS: dict[str, CodecKind]

def new_codec(name: str, level: int) -> Codec: ...
