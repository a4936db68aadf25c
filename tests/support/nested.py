"""JSON that is valid and nested more deeply than parsers with recursion can follow."""

LEVELS = 20_000
ARRAYS = b"[" * LEVELS + b"]" * LEVELS
OBJECT = b'{"x":' + ARRAYS + b"}"


def levels(count: int) -> bytes:
    """An array nested this deeply."""
    return b"[" * count + b"]" * count
