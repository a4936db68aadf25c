"""Builds publishing commands from delimited text or from the bodies of a batch."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memchr, memcpy

from nsqc.client.chunk cimport Chunk
from nsqc.wire.hton cimport store_i32

cdef enum:
    SIZE_BYTES = 4


def cut(bytes prefix not None, bytes head not None, const unsigned char[::1] block not None, Py_ssize_t start,
        Py_ssize_t stop, unsigned char delimiter, Py_ssize_t max_rows, int64_t max_bytes, int64_t max_message) -> tuple:
    """Complete lines as one command; see cut.pyi."""
    cdef Py_ssize_t c_prefix = len(prefix), c_head = len(head), at = start, rows = 0, length = 0
    cdef int64_t size, room
    cdef const char *c_line
    cdef const char *c_end
    cdef const char *c_stop
    cdef const char *c_before = head
    cdef char *c_to
    cdef char *c_begin
    cdef bint too_large = False
    cdef bytes command
    if not 0 <= start <= stop <= block.shape[0]:
        raise IndexError(stop)
    if start == stop:
        return b"", 0, start, False
    # Upper bound: the whole block with its lines as small as possible, and the limit plus one message.
    room = min(max_bytes + max_message, (stop - start) + ((stop - start) // 2 + 1) * (SIZE_BYTES + c_head))
    room = max(room, max_message + SIZE_BYTES + c_head)
    command = PyBytes_FromStringAndSize(NULL, c_prefix + 2 * SIZE_BYTES + <Py_ssize_t> room)
    c_begin = PyBytes_AS_STRING(command)
    c_to = c_begin
    if c_prefix:
        memcpy(c_to, <const char *> prefix, <size_t> c_prefix)
        c_to += c_prefix + 2 * SIZE_BYTES
    c_line = <const char *> &block[0] + start
    c_stop = <const char *> &block[0] + stop
    with nogil:
        while rows < max_rows and c_line < c_stop:
            c_end = <const char *> memchr(c_line, delimiter, <size_t> (c_stop - c_line))
            if c_end is NULL:
                # Incomplete, but already known to be too large.
                too_large = c_stop - c_line > max_message
                break
            size = c_end - c_line
            if size > max_message:
                too_large = True
                break
            if size:
                if rows and length + SIZE_BYTES + c_head + size > max_bytes:
                    break
                memcpy(c_to, c_before, <size_t> c_head)
                store_i32(c_to + c_head, <int32_t> size)
                memcpy(c_to + c_head + SIZE_BYTES, c_line, <size_t> size)
                c_to += c_head + SIZE_BYTES + size
                length += <Py_ssize_t> (c_head + SIZE_BYTES + size)
                rows += 1
            c_line = c_end + 1
    at = c_line - <const char *> &block[0]
    if not rows:
        return b"", 0, at, too_large
    if c_prefix:
        store_i32(c_begin + c_prefix, <int32_t> (length + SIZE_BYTES))
        store_i32(c_begin + c_prefix + SIZE_BYTES, <int32_t> rows)
    return command[:c_to - c_begin], rows, at, too_large


def repack(bytes prefix not None, Chunk bodies not None, Chunk offsets not None, Py_ssize_t start, Py_ssize_t max_rows,
           int64_t max_bytes) -> tuple:
    """An MPUB of messages of a batch; see cut.pyi."""
    cdef const int32_t *c_offsets = <const int32_t *> offsets.c_data
    cdef Py_ssize_t count = offsets.length // 4 - 1, c_prefix = len(prefix), end = start, row, size
    cdef int64_t length = 0
    cdef char *c_to
    cdef bytes command
    if not 0 <= start < count:
        raise IndexError(start)
    while end < count and end - start < max(max_rows, 1):
        size = SIZE_BYTES + c_offsets[end + 1] - c_offsets[end]
        if end > start and length + size > max_bytes:
            break
        length += size
        end += 1
    command = PyBytes_FromStringAndSize(NULL, <Py_ssize_t> (c_prefix + 2 * SIZE_BYTES + length))
    c_to = PyBytes_AS_STRING(command)
    memcpy(c_to, <const char *> prefix, <size_t> c_prefix)
    c_to += c_prefix
    store_i32(c_to, <int32_t> (length + SIZE_BYTES))
    store_i32(c_to + SIZE_BYTES, <int32_t> (end - start))
    c_to += 2 * SIZE_BYTES
    for row in range(start, end):
        size = c_offsets[row + 1] - c_offsets[row]
        store_i32(c_to, <int32_t> size)
        memcpy(c_to + SIZE_BYTES, bodies.c_data + c_offsets[row], <size_t> size)
        c_to += SIZE_BYTES + size
    return command, end
