"""Message ids (nsqc.store.message) from Python."""

from nsqc.store.message cimport GuidFactory
from nsqc.wire.const cimport MESSAGE_ID_BYTES


def next_id(GuidFactory factory not None, wall_ns: int) -> bytes:
    """The next id for a time in nanoseconds since 1970."""
    cdef char digits[MESSAGE_ID_BYTES]
    factory.next(wall_ns, digits)
    return digits[:MESSAGE_ID_BYTES]
