"""How many files logs keep open. See the .pxd."""

from libc.stdint cimport int64_t

cdef enum:
    MOST_OPEN = 1024

cdef int64_t open_files = 0
cdef int64_t most_open = MOST_OPEN


cdef bint stays_open(int count) noexcept:
    global open_files
    if open_files + count > most_open:
        return False
    open_files += count
    return True


cdef void was_closed(int count) noexcept:
    global open_files
    open_files -= count


def limit_to(int64_t count):
    """Logs keep at most so many files open, and never more than MOST_OPEN."""
    global most_open
    most_open = min(count, <int64_t> MOST_OPEN)
