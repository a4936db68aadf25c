"""HTTP/1.1 requests: heads and chunked bodies, parsed strictly. See the .pxd."""

from typing import final

# ====================================================================== chunks

@final
class Chunks:
    done: bool
    def feed(self, data: bytes, at: int, body: bytearray | None) -> int: ...


# ====================================================================== heads

class HeadError(ValueError):
    status: int
    reason: str
    def __init__(self, status: int, reason: str = "") -> None: ...

@final
class Head:
    method: bytes
    target: bytes
    minor: int
    length: int
    keep_alive: bool
    expects: bool
    host: bytes | None
    accept: bytes
    origin: bytes | None
    fetch_site: bytes | None
    authorization: bytes | None
    publish_id: bytes | None
    def is_plain_post(self) -> bool: ...

def head_end(data: bytes | bytearray, start: int) -> int: ...
def skip_empty_lines(data: bytes, at: int) -> int: ...
def check_beginning(data: bytes | bytearray) -> bool: ...
def parse_head(data: bytes) -> Head: ...
