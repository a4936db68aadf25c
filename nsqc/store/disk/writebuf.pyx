"""Write buffers of disk queues. See the .pxd."""

from libc.stdint cimport int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from nsqc.store.disk.segment cimport SIZE_BYTES
from nsqc.store.disk.unacked cimport unacked_done
from nsqc.wire.hton cimport load_i32

cdef enum:
    KEPT_OUT_BYTES = 65536      # of an emptied buffer

cdef int64_t buffers = 0        # allocations of records to write, of all queues


cdef int out_room(OutBuf *out, int64_t need) noexcept nogil:
    """Room for need more bytes; -1: no memory."""
    global buffers
    cdef int64_t room = out.length + need
    cdef char *c_grown
    if room <= out.room:
        return 0
    room = max(room, 2 * out.room, <int64_t> 4096)
    c_grown = <char *> realloc(out.c_data, <size_t> room)
    if c_grown is NULL:
        return -1
    buffers += out.c_data is NULL
    out.c_data = c_grown
    out.room = room
    return 0


cdef int former_room(OutBuf *out, int64_t need) noexcept nogil:
    cdef int64_t room = out.former_end + need
    cdef Former *c_grown
    if room <= out.former_room:
        return 0
    room = max(room, 2 * out.former_room, <int64_t> 64)
    c_grown = <Former *> realloc(out.formers, <size_t> room * sizeof(Former))
    if c_grown is NULL:
        return -1
    out.formers = c_grown
    out.former_room = room
    return 0


cdef void out_clear(OutBuf *out) noexcept nogil:
    """Empty, with a small allocation at most; its places must be done with."""
    out.length = out.taken = out.records = 0
    out.former_first = out.former_end = 0
    if out.room > KEPT_OUT_BYTES:
        data_free(out.c_data)
        out.c_data = NULL
        out.room = 0
    if out.former_room * <int64_t> sizeof(Former) > KEPT_OUT_BYTES:
        free(out.formers)
        out.formers = NULL
        out.former_room = 0


cdef void data_free(char *c_data) noexcept nogil:
    global buffers
    buffers -= c_data is not NULL
    free(c_data)


cdef void out_free(OutBuf *out) noexcept nogil:
    data_free(out.c_data)
    free(out.formers)
    memset(out, 0, sizeof(out[0]))


cdef void data_moved() noexcept nogil:
    global buffers
    buffers -= 1


cdef int64_t count_records(OutBuf *out, int64_t upto) noexcept nogil:
    """Records between what was handed out and an offset."""
    cdef int64_t offset = out.taken, count = 0
    while offset < upto:
        offset += SIZE_BYTES + <int64_t> load_i32(out.c_data + offset)
        count += 1
    return count


cdef void forget_formers(OutBuf *out, Unacked *unacked) noexcept nogil:
    """The records of the buffer go, and with them what they had been before."""
    while out.former_first < out.former_end:
        unacked_done(unacked, out.formers[out.former_first].place)
        out.former_first += 1


def alive() -> int:
    """Write buffers that own memory now, of all queues."""
    return buffers
