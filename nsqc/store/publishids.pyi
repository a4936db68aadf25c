"""Publish ids that topics remember, and their files beside a log. See the .pxd."""

from typing import final

from nsqc.log import Log

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


# ====================================================================== journal of ids

def load(folder: str, log_id: int, end: int, window_ns: int, limit: int, wall_ns: int, monotonic_ns: int, log: Log,
         ) -> tuple[PublishIds, IdJournal]: ...
def remove(folder: str) -> None: ...

@final
class IdJournal:
    def __init__(self, folder: str, log: Log) -> None: ...
