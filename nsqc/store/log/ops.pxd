# How operations of channels are written to a journal: see docs/ondisk.md. A header only: there is no module to it.
#
# A section holds operations of one channel. Offsets in it are differences to the one before, which starts at the
# section's base: most take one byte.

from libc.stdint cimport int64_t, uint32_t, uint64_t
from nsqc.wire.hton cimport store_i64

cdef enum:
    OP_ADVANCE = 1          # cursor: what lies before it is out
    OP_FIN = 2              # first, count: finished
    OP_REQ = 3              # offset, attempts, due: waits again
    OP_RESET = 4            # cursor: nothing is unfinished
    OP_NAME = 5             # length, name
    OP_DROP = 6             # the channel is deleted
    OP_OUT = 7              # first, count: unfinished; only in snapshots
    OP_SKIP = 8             # first, count: finished, though ahead of the cursor
    OP_END = 15             # a snapshot is complete
    MOST_OP_BYTES = 32      # of an operation other than OP_NAME
    TOPIC_NUMBER = 0        # in place of a channel number: the topic itself
    END_NUMBER = -1         # likewise: the end of a snapshot
    SECTION_BYTES = 16      # head of a section: channel number, bytes of operations, base offset
    FRAME_BYTES = 8         # head of a frame: bytes of payload, crc32c of the payload
    JOURNAL_HEAD_BYTES = 16     # magic, number, crc32c


cdef inline char *put_varint(char *c_to, uint64_t value) noexcept nogil:
    # LEB128; returns the end.
    while value >= 128:
        c_to[0] = <char> (value & 127 | 128)
        value >>= 7
        c_to += 1
    c_to[0] = <char> value
    return c_to + 1


cdef inline char *put_offset(char *c_to, int64_t offset, int64_t last) noexcept nogil:
    # The zigzag difference to last.
    cdef int64_t delta = offset - last
    return put_varint(c_to, (<uint64_t> delta << 1) ^ <uint64_t> (delta >> 63))


cdef inline char *put_range(char *c_to, int kind, int64_t first, int64_t count, int64_t *last) noexcept nogil:
    # OP_FIN, OP_OUT or OP_SKIP.
    c_to[0] = <char> kind
    c_to = put_offset(c_to + 1, first, last[0])
    last[0] = first + count
    return put_varint(c_to, <uint64_t> count)


cdef inline char *put_cursor(char *c_to, int kind, int64_t cursor, int64_t *last) noexcept nogil:
    # OP_ADVANCE or OP_RESET.
    c_to[0] = <char> kind
    c_to = put_offset(c_to + 1, cursor, last[0])
    last[0] = cursor
    return c_to


cdef inline char *put_req(char *c_to, int64_t offset, uint32_t attempts, int64_t due_ns,
                          int64_t *last) noexcept nogil:
    c_to[0] = OP_REQ
    c_to = put_varint(put_offset(c_to + 1, offset, last[0]), attempts)
    store_i64(c_to, due_ns)
    last[0] = offset
    return c_to + 8
