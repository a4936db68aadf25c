"""Messages, their ids, and what holds them: FIFO, places on disk, deliveries, heap, in-flight table. See the .pxd."""

from typing import Never, final

# ====================================================================== message

def messages_alive() -> int: ...


# ====================================================================== guid

@final
class GuidFactory:
    reason: str

    def __init__(self, *args: Never, **kwargs: Never) -> None: ...
    @staticmethod
    def make(node_id: int, first_unit: int = 0) -> GuidFactory: ...
    @property
    def reached(self) -> int: ...
    def set_bound(self, bound: int, follow_to: int) -> None: ...
    @property
    def is_low(self) -> bool: ...


# ====================================================================== unacked

def places_alive() -> int: ...


# ====================================================================== delivery

def deliveries_alive() -> int: ...
