from typing import Final

EPHEMERAL: Final[str]

def is_valid_name(name: bytes) -> bool: ...

def is_ephemeral(name: bytes) -> bool: ...
