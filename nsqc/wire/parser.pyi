"""Bytes of clients to commands: names, the input buffer, the payload of MPUB, the resumable parser. See the .pxd."""

from typing import Final

# ====================================================================== names

EPHEMERAL: Final[str]

def is_valid_name(name: bytes) -> bool: ...

def is_ephemeral(name: bytes) -> bool: ...


# ====================================================================== input buffer

def alive() -> int: ...


# ====================================================================== multi-publish

def has_long_line(body: bytes, end: int, limit: int) -> bool: ...
def check(body: bytes, max_msg_size: int, max_body_size: int) -> int: ...
