"""Receive buffer of a connection. Empty, it owns no memory, so that an idle connection costs nothing here."""

from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove


cdef int inbuf_append(InBuf *inbuf, const char *c_from, Py_ssize_t length) noexcept nogil:
    cdef Py_ssize_t need = inbuf.length + length
    cdef Py_ssize_t room = inbuf.room
    cdef char *c_grown
    if need > room:
        room = max(need, 2 * room)
        c_grown = <char *> realloc(inbuf.data, <size_t> room)
        if c_grown is NULL:
            return -1
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
    free(inbuf.data)
    inbuf.data = NULL
    inbuf.length = inbuf.room = 0
