"""Publish ids that topics remember. See the .pxd."""

from typing import final

# ====================================================================== table

def sip(key: bytes, data: bytes, compression: int = 1, finalization: int = 3) -> bytes: ...

@final
class PublishIds:
    def __init__(self, window_ns: int, limit: int, key: bytes | None = None) -> None: ...
    @property
    def count(self) -> int: ...
    @property
    def limit(self) -> int: ...
    @property
    def forgotten(self) -> int: ...
