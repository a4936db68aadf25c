from collections.abc import Iterable

from nsqc.client.batch import Ids

def checked(body: bytes | bytearray | memoryview, max_msg_size: int) -> bytes:
    """One body as bytes. Raises BadMessage if nsqd would refuse it, TypeError if it is not a body."""

def all_checked(bodies: Iterable[bytes | bytearray | memoryview], max_msg_size: int) -> tuple[bytes, ...]:
    """All bodies of an iterable as bytes. Raises BadMessage for the first one that nsqd would refuse, TypeError if one
    is not a body, and the iterable's exceptions."""

def pub(topic: bytes, body: bytes) -> bytes:
    """PUB."""

def with_body(line: bytes, body: bytes) -> bytes:
    """A command with a body."""

def batch(line: bytes, bodies: tuple[bytes, ...], start: int, max_rows: int, max_bytes: int) -> tuple[bytes, int]:
    """A batch of bodies from start on, after the line of its command: (command, index after the last). At least one
    body, otherwise within both limits; max_bytes counts the body of the command. bodies: from all_checked."""

def finish(ids: Ids) -> bytes:
    """FIN for each of the ids, 16 bytes each."""

def requeue(ids: Ids, delay_ms: int = 0) -> bytes:
    """REQ after delay_ms milliseconds for each of the ids."""

def touch(ids: Ids) -> bytes:
    """TOUCH for each of the ids."""
