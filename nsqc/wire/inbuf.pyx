"""Receive buffer of a connection. Owns no memory while empty: idle connections cost nothing here."""

from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove

cdef extern from *:
    """
    static long nsqc_inbuf_alive = 0;
    #if NSQC_DEBUG
    #define NSQC_COUNT_INBUF(n) (nsqc_inbuf_alive += (n))
    #else
    #define NSQC_COUNT_INBUF(n) ((void) 0)
    #endif
    """
    long nsqc_inbuf_alive
    void NSQC_COUNT_INBUF(long) nogil


cdef int inbuf_append(InBuf *inbuf, const char *c_from, Py_ssize_t length) noexcept nogil:
    cdef Py_ssize_t need = inbuf.length + length
    cdef Py_ssize_t room = inbuf.room
    cdef char *c_grown
    if need > room:
        room = max(need, 2 * room)
        c_grown = <char *> realloc(inbuf.data, <size_t> room)
        if c_grown is NULL:
            return -1
        if inbuf.data is NULL:
            NSQC_COUNT_INBUF(1)
        inbuf.data = c_grown
        inbuf.room = room
    memcpy(inbuf.data + inbuf.length, c_from, <size_t> length)
    inbuf.length = need
    return 0


cdef void inbuf_drop(InBuf *inbuf, Py_ssize_t length) noexcept nogil:
    if length >= inbuf.length:
        inbuf_free(inbuf)
    elif length > 0:
        inbuf.length -= length
        memmove(inbuf.data, inbuf.data + length, <size_t> inbuf.length)


cdef void inbuf_free(InBuf *inbuf) noexcept nogil:
    if inbuf.data is not NULL:
        NSQC_COUNT_INBUF(-1)
    free(inbuf.data)
    inbuf.data = NULL
    inbuf.length = inbuf.room = 0


def alive() -> int:
    """Buffers that own memory; always 0 in a release build, which does not count them."""
    return nsqc_inbuf_alive
