from typing import Final

EPHEMERAL: Final[str]

def is_valid_name(name: bytes) -> bool:
    """Whether name is a topic or channel name: 1 to 64 of . a-z A-Z 0-9 _ -, "#ephemeral" may follow."""

def is_ephemeral(name: bytes) -> bool:
    """Whether a valid name ends with #ephemeral."""
