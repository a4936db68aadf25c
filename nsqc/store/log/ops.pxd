# Operations of channels, as stored in journals: see docs/ondisk.md. Header only.

from libc.stdint cimport int64_t, uint16_t, uint32_t
from libc.string cimport memcpy, memset

from nsqc.store.log.frame cimport MOST_OFFSET
from nsqc.wire.const cimport MAX_NAME_BYTES
from nsqc.wire.hton cimport load_i32, load_i64, load_u16, store_i32, store_i64, store_u16

cdef enum:
    OP_ADVANCE = 1          # offset: the cursor rises to it
    OP_FIN = 2              # offset, end: finished
    OP_REQ = 3              # offset, attempts, due: waits again
    OP_RESET = 4            # offset: the cursor; nothing is unfinished
    OP_NAME = 5             # the channel's
    OP_DROP = 6             # the channel is deleted
    OP_SKIP = 7             # offset, end: finished, though ahead of the cursor
    OP_BYTES = 24
    OP_END_AT = 16          # where the end of OP_FIN lies
    NAME_ROOM = 72
    TOPIC_NUMBER = 0
    MOST_NUMBER = 0x7FFFFFFF    # of a channel: the next ones are counted up from it

cdef struct Op:
    int kind, name_bytes
    uint32_t number, attempts
    int64_t offset, value
    const char *c_name


cdef inline int64_t op_length(int kind) noexcept nogil:
    return OP_BYTES + NAME_ROOM if kind == OP_NAME else OP_BYTES


cdef inline void op_store(char *c_to, const Op *op) noexcept nogil:     # op_length() bytes
    c_to[0] = <char> op.kind
    c_to[1] = <char> op.name_bytes
    store_u16(c_to + 2, <uint16_t> min(op.attempts, <uint32_t> 65535))
    store_i32(c_to + 4, <int> op.number)
    store_i64(c_to + 8, op.offset)
    store_i64(c_to + OP_END_AT, op.value)
    if op.kind == OP_NAME:
        memset(c_to + OP_BYTES, 0, NAME_ROOM)
        memcpy(c_to + OP_BYTES, op.c_name, <size_t> op.name_bytes)


cdef inline bint op_load(const char *c_from, int64_t have, Op *op) noexcept nogil:
    # False: this is not an operation, or its numbers are impossible: a file may come from anyone.
    if have < OP_BYTES or have < op_length(c_from[0]):
        return False
    op.kind = c_from[0]
    op.name_bytes = c_from[1]
    op.attempts = load_u16(c_from + 2)
    op.number = <uint32_t> load_i32(c_from + 4)
    op.offset = load_i64(c_from + 8)
    op.value = load_i64(c_from + OP_END_AT)
    op.c_name = c_from + OP_BYTES
    if op.number > MOST_NUMBER:
        return False
    if op.kind == OP_NAME:
        return 0 < op.name_bytes <= MAX_NAME_BYTES
    if op.kind == OP_FIN or op.kind == OP_SKIP:
        return 0 <= op.offset < op.value < MOST_OFFSET
    return OP_ADVANCE <= op.kind <= OP_DROP and 0 <= op.offset < MOST_OFFSET
