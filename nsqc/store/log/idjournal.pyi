from typing import final

from nsqc.log import Log
from nsqc.store.publishids import PublishIds

def load(folder: str, log_id: int, end: int, window_ns: int, limit: int, wall_ns: int, monotonic_ns: int, log: Log,
         ) -> tuple[PublishIds, IdJournal]: ...
def remove(folder: str) -> None: ...

@final
class IdJournal:
    def __init__(self, folder: str, log: Log) -> None: ...
