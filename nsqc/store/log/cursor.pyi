"""A channel's position in a log, and those of earlier logs. See the .pxd."""

from typing import Never, final

from nsqc.store.log.names import REMOVED as REMOVED
from nsqc.store.log.names import SETTLED as SETTLED

NO_NUMBER: int

@final
class TopicPlace:
    def __init__(self, *args: Never, **kwargs: Never) -> None: ...
    @property
    def next(self) -> int: ...

@final
class Earlier:
    @property
    def journal(self) -> tuple[list[int], int, int, int, int, int, int, int, bool]: ...
    @property
    def files(self) -> list[tuple[int, bool]]: ...
    @property
    def damaged(self) -> int: ...
    @property
    def torn_bytes(self) -> int: ...
    def states(self) -> list[tuple[int, str, int, list[tuple[int, int]], list[tuple[int, int]],
                                   list[tuple[int, int, int]]]]:
        """Number, name ("": lost), cursor, unfinished ranges, finished ranges ahead, waiting (offset, attempts, due) of
        each channel, ephemeral ones excluded."""

    @property
    def channels(self) -> list[bytes]: ...
    @property
    def topic_cursor(self) -> int | None: ...
    @property
    def removed_to(self) -> int: ...
    @property
    def reached(self) -> int: ...
