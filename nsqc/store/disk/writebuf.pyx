"""Write buffers of disk queues. See the .pxd."""

from libc.stdint cimport INT64_MAX, int64_t, uint16_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from nsqc.store.disk.segment cimport HEAD_BYTES, record_load, record_store
from nsqc.store.disk.unacked cimport unacked_done
from nsqc.wire.const cimport SIZE_BYTES
from nsqc.wire.hton cimport load_i32

cdef enum:
    FIRST_ROOM = 4096
    FIRST_FORMERS = 64
    KEPT_OUT_BYTES = 65536      # of an emptied buffer
    MOST_SPARE = 1048576        # bytes of a written buffer kept for the next one
    ALL_SPARE = 67108864        # of all queues

cdef int64_t buffers = 0        # that own memory, in all queues
cdef int64_t all_spare = 0      # bytes, likewise


# ---------------------------------------------------------------------- memory

cdef int out_room(WriteBuf *out, int64_t need) noexcept nogil:
    """Makes room for need more bytes; -1: no memory."""
    global buffers
    cdef int64_t room = out.length + need
    cdef char *c_grown
    if room <= out.room:
        return 0
    room = max(room, 2 * out.room, <int64_t> FIRST_ROOM)
    c_grown = <char *> realloc(out.c_data, <size_t> room)
    if c_grown is NULL:
        return -1
    buffers += out.c_data is NULL
    out.c_data = c_grown
    out.room = room
    return 0


cdef int former_room(WriteBuf *out) noexcept nogil:
    """Makes room for one more place; -1: no memory."""
    cdef int64_t room = out.former_end + 1
    cdef Former *c_grown
    if room <= out.former_room:
        return 0
    room = max(room, 2 * out.former_room, <int64_t> FIRST_FORMERS)
    c_grown = <Former *> realloc(out.formers, <size_t> room * sizeof(Former))
    if c_grown is NULL:
        return -1
    out.formers = c_grown
    out.former_room = room
    return 0


cdef void out_clear(WriteBuf *out) noexcept nogil:
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


cdef void out_free(WriteBuf *out) noexcept nogil:
    data_free(out.c_data)
    free(out.formers)
    memset(out, 0, sizeof(out[0]))


cdef void data_free(char *c_data) noexcept nogil:
    global buffers
    buffers -= c_data is not NULL
    free(c_data)


cdef void data_moved() noexcept nogil:
    global buffers
    buffers -= 1


cdef void spare_keep(Spare *spare, WriteBuf *out) noexcept nogil:
    global all_spare
    if spare.c_data is NULL and 0 < out.room <= MOST_SPARE and all_spare + out.room <= ALL_SPARE:
        spare.c_data = out.c_data
        spare.room = out.room
        all_spare += out.room
        out.c_data = NULL
        out.room = 0


cdef void spare_use(Spare *spare, WriteBuf *out) noexcept nogil:
    global all_spare
    out.c_data = spare.c_data
    out.room = spare.room
    all_spare -= spare.room
    spare.c_data = NULL
    spare.room = 0


cdef void spare_free(Spare *spare) noexcept nogil:
    global all_spare
    all_spare -= spare.room
    data_free(spare.c_data)
    spare.c_data = NULL
    spare.room = 0


# ---------------------------------------------------------------------- records

cdef int out_append(WriteBuf *out, Message *message, uint16_t attempts, Place *former) noexcept nogil:
    if out_room(out, <int64_t> HEAD_BYTES + message.size) < 0:
        return -1
    if former is not NULL:
        if former_room(out) < 0:
            return -1
        out.formers[out.former_end].offset = out.length
        out.formers[out.former_end].place = former
        out.former_end += 1
    record_store(out.c_data + out.length, message, attempts)
    out.length += <int64_t> HEAD_BYTES + message.size
    out.records += 1
    return 0


cdef Message *out_pop(WriteBuf *out, uint16_t *attempts, Place **place) noexcept nogil:
    cdef Message *message = record_load(out.c_data + out.taken, attempts)
    place[0] = NULL
    if message is NULL:
        return NULL
    if out.former_first < out.former_end and out.formers[out.former_first].offset == out.taken:
        place[0] = out.formers[out.former_first].place
        out.former_first += 1
    out.taken += HEAD_BYTES + message.size
    out.records -= 1
    if out.records == 0:
        out_clear(out)
    return message


cdef int64_t out_body_bytes(WriteBuf *out) noexcept nogil:
    return out.length - out.taken - HEAD_BYTES * out.records


cdef int64_t count_records(WriteBuf *out, int64_t upto) noexcept nogil:
    cdef int64_t offset = out.taken, count = 0
    while offset < upto:
        offset += SIZE_BYTES + <int64_t> load_i32(out.c_data + offset)
        count += 1
    return count


cdef void end_formers(WriteBuf *out, Unacked *unacked, int64_t upto) noexcept nogil:
    while out.former_first < out.former_end and out.formers[out.former_first].offset < upto:
        unacked_done(unacked, out.formers[out.former_first].place)
        out.former_first += 1


cdef void forget_formers(WriteBuf *out, Unacked *unacked) noexcept nogil:
    end_formers(out, unacked, INT64_MAX)


def alive() -> int:
    """Write buffers that own memory, in all queues."""
    return buffers
