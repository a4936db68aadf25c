from typing import Self, final

from nsqc.client.batch import Ids

@final
class RecentIds:
    """Remembers the last capacity ids (1 to 2^26), each with the number of its nsqd. Uses about 32 bytes of memory per
    id."""

    def __new__(cls, capacity: int) -> Self: ...
    @property
    def count(self) -> int:
        """Number of ids remembered."""

    def remember(self, ids: Ids, node: int) -> bytearray:
        """Adds ids (16 bytes each); a byte for each: 1 if it is new, 0 if it was known."""

    def known(self, ids: Ids, node: int) -> bytearray:
        """A byte for each of the ids: 1 if it is known."""

    def __len__(self) -> int: ...
