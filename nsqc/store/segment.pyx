"""Records of disk queue files: their form, and how to find them again behind a damage. Knows no file."""

from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t
from libc.string cimport memcpy

from nsqc.store.message cimport message_new
from nsqc.wire.const cimport MESSAGE_HEAD_BYTES
from nsqc.wire.hton cimport load_i32, load_i64, load_u16, store_i32, store_i64, store_u16

# Timestamps outside of 2001 to 2128 count as damage when a file is searched for intact records.
cdef int64_t EARLIEST_NS = 1000000000000000000
cdef int64_t LATEST_NS = 5000000000000000000


cdef void record_store(char *c_to, Message *message, uint16_t attempts) noexcept nogil:
    store_i32(c_to, <int32_t> (MESSAGE_HEAD_BYTES + message.size))
    store_i64(c_to + 4, message.timestamp_ns)
    store_u16(c_to + 12, attempts)
    memcpy(c_to + 14, message.id, 16)
    memcpy(c_to + RECORD_HEAD, message.body, message.size)


cdef Message *record_load(const char *c_from, uint16_t *attempts) noexcept nogil:
    attempts[0] = load_u16(c_from + 12)
    return message_new(c_from + 14, load_i64(c_from + 4), c_from + RECORD_HEAD,
                       <uint32_t> (load_i32(c_from) - MESSAGE_HEAD_BYTES))


cdef int64_t record_size(const char *c_from, int64_t have, int64_t max_message) noexcept nogil:
    cdef int64_t size
    if have < 4:
        return 0
    size = load_i32(c_from)
    if size < MESSAGE_HEAD_BYTES or size > MESSAGE_HEAD_BYTES + max_message:
        return -1
    return 4 + size if have >= 4 + size else 0


cdef bint usable_id(const char *c_id) noexcept nogil:
    cdef int at
    for at in range(16):
        if not c'!' <= c_id[at] <= c'~':
            return False
    return True


cdef bint looks_like_head(const char *c_from, int64_t have, int64_t max_message) noexcept nogil:
    """Size, timestamp and id of a record as this daemon and the original write them."""
    cdef int64_t size, when
    cdef int at
    if have < RECORD_HEAD:
        return False
    size = load_i32(c_from)
    when = load_i64(c_from + 4)
    if size < MESSAGE_HEAD_BYTES or size > MESSAGE_HEAD_BYTES + max_message or when < EARLIEST_NS or when > LATEST_NS:
        return False
    for at in range(14, 30):
        if not (c'0' <= c_from[at] <= c'9' or c'a' <= c_from[at] <= c'f'):
            return False
    return True


cdef bint record_holds(const char *c_from, int64_t size, int64_t have, int64_t left,
                       int64_t max_message) noexcept nogil:
    cdef int64_t following, at
    if not usable_id(c_from + 14):
        return False
    if left == size:
        return True
    if left - size >= 4:
        following = load_i32(c_from + size)
        if MESSAGE_HEAD_BYTES <= following <= MESSAGE_HEAD_BYTES + max_message and size + 4 + following <= left:
            return True
    for at in range(4, size):
        if looks_like_head(c_from + at, have - at, max_message):
            return False
    return True


cdef Scan record_scan(const char *c_from, int64_t have, int64_t max_message) noexcept nogil:
    cdef Scan found
    cdef int64_t size
    found.records = found.end = 0
    while found.end < have:
        size = record_size(c_from + found.end, have - found.end, max_message)
        if size > 0 and not record_holds(c_from + found.end, size, have - found.end, have - found.end, max_message):
            size = -1
        if size <= 0:
            found.damaged = size < 0
            return found
        found.records += 1
        found.end += size
    found.damaged = False
    return found


cdef int64_t record_resync(const char *c_from, int64_t at, int64_t have, int64_t max_message) noexcept nogil:
    while at + RECORD_HEAD <= have:
        if (looks_like_head(c_from + at, have - at, max_message)
                and record_size(c_from + at, have - at, max_message) > 0):
            return at
        at += 1
    return -1
