"""Memory of messages: arenas of chunks, slabs in them; the clock and the checks of the debug build. See the .pxd."""

from typing import Final, final

# ====================================================================== clock

@final
class Clock:
    def __init__(self) -> None: ...


# ====================================================================== rules

ENABLED: Final[bool]


# ====================================================================== allocator

def heap() -> tuple[int, int, int]: ...
def return_free() -> None: ...


# ====================================================================== slab

def held_bytes() -> int: ...
