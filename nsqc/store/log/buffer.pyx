"""Growing buffers. See the .pxd."""

from libc.stdint cimport int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

cdef extern from *:
    """
    #define NSQC_ADD(counter, n) __atomic_fetch_add(&(counter), (n), __ATOMIC_RELAXED)
    """
    void NSQC_ADD(long counter, long n) nogil

cdef enum:
    FIRST_ROOM = 512

cdef long allocated = 0         # buffers that own memory


cdef int buffer_room(Buffer *buffer, int64_t need) noexcept nogil:
    cdef int64_t room = buffer.length + need
    cdef char *c_grown
    if room <= buffer.room:
        return 0
    room = max(room, 2 * buffer.room, <int64_t> FIRST_ROOM)
    c_grown = <char *> realloc(buffer.c_data, <size_t> room)
    if c_grown is NULL:
        return -1
    NSQC_ADD(allocated, buffer.c_data is NULL)
    buffer.c_data = c_grown
    buffer.room = room
    return 0


cdef void buffer_free(Buffer *buffer) noexcept nogil:
    NSQC_ADD(allocated, -(buffer.c_data is not NULL))
    free(buffer.c_data)
    memset(buffer, 0, sizeof(Buffer))


def alive() -> int:
    """Count of buffers that own memory."""
    return allocated
