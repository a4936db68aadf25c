"""Writes response, error and message frames to a connection's send buffer. Knows no socket."""

from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from nsqc.wire.const cimport (ATTEMPTS_AT, FRAME_HEAD_BYTES, FRAME_MESSAGE, MESSAGE_HEAD_BYTES, MESSAGE_ID_AT,
                              MESSAGE_ID_BYTES, SIZE_BYTES, TIMESTAMP_AT)
from nsqc.wire.hton cimport store_i32, store_i64, store_u16

cdef extern from *:
    """
    static long nsqc_sendbuf_alive = 0;
    #if NSQC_DEBUG
    #define NSQC_COUNT_SENDBUF(n) (nsqc_sendbuf_alive += (n))
    #else
    #define NSQC_COUNT_SENDBUF(n) ((void) 0)
    #endif
    """
    long nsqc_sendbuf_alive
    void NSQC_COUNT_SENDBUF(long) nogil

cdef enum:
    FIRST_ROOM = 1024       # enough for replies; consumers grow from here
    KEPT_ROOM = 1024        # kept by an empty buffer: idle connections stay small
    USUAL_ROOM = 196608     # largest size that it grows to in one step; busy consumers flush at two thirds of it


cdef char *sendbuf_reserve(SendBuf *buf, Py_ssize_t length) noexcept nogil:
    """Adds length bytes to the buffer; returns where to write them, or NULL."""
    cdef Py_ssize_t need = buf.length + length
    cdef Py_ssize_t room = buf.room
    cdef char *c_grown
    if need > room:
        room = max(FIRST_ROOM, 2 * room, need, buf.usual)
        c_grown = <char *> realloc(buf.data, <size_t> room)
        if c_grown is NULL:
            return NULL
        if buf.data is NULL:
            NSQC_COUNT_SENDBUF(1)
        buf.data = c_grown
        buf.room = room
    buf.length = need
    return buf.data + need - length


cdef inline void put_message_head(char *c_to, int64_t timestamp_ns, uint16_t attempts, const char *c_id,
                                  uint32_t size) noexcept nogil:
    store_i32(c_to, <int32_t> (FRAME_HEAD_BYTES - SIZE_BYTES + MESSAGE_HEAD_BYTES + size))
    store_i32(c_to + SIZE_BYTES, FRAME_MESSAGE)
    store_i64(c_to + FRAME_HEAD_BYTES + TIMESTAMP_AT, timestamp_ns)
    store_u16(c_to + FRAME_HEAD_BYTES + ATTEMPTS_AT, attempts)
    memcpy(c_to + FRAME_HEAD_BYTES + MESSAGE_ID_AT, c_id, MESSAGE_ID_BYTES)


cdef int frame_bytes(SendBuf *buf, int32_t frame_type, const char *c_data, Py_ssize_t length) noexcept nogil:
    cdef char *c_to = sendbuf_reserve(buf, FRAME_HEAD_BYTES + length)
    if c_to is NULL:
        return -1
    store_i32(c_to, <int32_t> (FRAME_HEAD_BYTES - SIZE_BYTES + length))
    store_i32(c_to + SIZE_BYTES, frame_type)
    memcpy(c_to + FRAME_HEAD_BYTES, c_data, <size_t> length)
    return 0


cdef int frame_message(SendBuf *buf, int64_t timestamp_ns, uint16_t attempts, const char *c_id,
                       const char *c_body, uint32_t size) noexcept nogil:
    cdef char *c_to = sendbuf_reserve(buf, FRAME_HEAD_BYTES + MESSAGE_HEAD_BYTES + <Py_ssize_t> size)
    if c_to is NULL:
        return -1
    put_message_head(c_to, timestamp_ns, attempts, c_id, size)
    memcpy(c_to + FRAME_HEAD_BYTES + MESSAGE_HEAD_BYTES, c_body, size)
    return 0


cdef int frame_message_head(SendBuf *buf, int64_t timestamp_ns, uint16_t attempts, const char *c_id,
                            uint32_t size) noexcept nogil:
    cdef char *c_to = sendbuf_reserve(buf, FRAME_HEAD_BYTES + MESSAGE_HEAD_BYTES)
    if c_to is NULL:
        return -1
    put_message_head(c_to, timestamp_ns, attempts, c_id, size)
    return 0


cdef void sendbuf_clear(SendBuf *buf) noexcept nogil:
    buf.usual = min(max(buf.length + (buf.length >> 3), buf.usual >> 1), <Py_ssize_t> USUAL_ROOM)
    buf.length = 0
    if buf.room > KEPT_ROOM:
        sendbuf_free(buf)


cdef void sendbuf_free(SendBuf *buf) noexcept nogil:
    if buf.data is not NULL:
        NSQC_COUNT_SENDBUF(-1)
    free(buf.data)
    buf.data = NULL
    buf.length = buf.room = 0


def alive() -> int:
    """Send buffers that own memory; always 0 in a release build, which does not count them."""
    return nsqc_sendbuf_alive
