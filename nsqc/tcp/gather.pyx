"""Gathers output to be sent from its places in memory. Knows no socket. See the .pxd."""

from libc.stdint cimport uint16_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove, memset

from nsqc.store.message cimport message_ref, message_unref
from nsqc.wire.framer cimport frame_message_head, sendbuf_clear, sendbuf_free

cdef enum:
    FIRST_ROOM = 16     # bodies; the capacity of an empty list


cdef int gather_message(Gather *gather, Message *message, uint16_t attempts) noexcept nogil:
    cdef int room
    cdef Body *c_grown
    if gather.end == gather.room:
        room = max(<int> FIRST_ROOM, 2 * gather.room)
        c_grown = <Body *> realloc(gather.bodies, <size_t> room * sizeof(Body))
        if c_grown is NULL:
            return -1
        gather.bodies = c_grown
        gather.room = room
    if frame_message_head(&gather.buf, message.timestamp_ns, attempts, message.id, message.size) < 0:
        return -1
    message_ref(message)
    gather.bodies[gather.end].message = message
    gather.bodies[gather.end].at = gather.buf.length
    gather.end += 1
    gather.body_bytes += message.size
    return 0


cdef int gather_vector(const Gather *gather, Py_ssize_t limit, iovec *c_pieces, int room,
                       Py_ssize_t *bytes) noexcept nogil:
    cdef Py_ssize_t at = gather.buf_at, skip = gather.body_at, left = limit, size
    cdef int body = gather.first, count = 0
    cdef const Body *c_body
    while left > 0 and count < room:
        c_body = &gather.bodies[body] if body < gather.end else NULL
        size = min(left, (gather.buf.length if c_body is NULL else c_body.at) - at)
        if size > 0:
            c_pieces[count].iov_base = gather.buf.data + at
            at += size
        else:
            if c_body is NULL:
                break
            size = min(left, <Py_ssize_t> c_body.message.size - skip)
            c_pieces[count].iov_base = <void *> (c_body.message.body + skip)
            skip = 0
            body += 1
        c_pieces[count].iov_len = <size_t> size
        left -= size
        count += 1
    bytes[0] = limit - left
    return count


cdef void gather_sent(Gather *gather, Py_ssize_t length) noexcept nogil:
    cdef Body *c_body
    cdef Py_ssize_t size
    while length > 0:
        c_body = &gather.bodies[gather.first] if gather.first < gather.end else NULL
        size = min(length, (gather.buf.length if c_body is NULL else c_body.at) - gather.buf_at)
        gather.buf_at += size
        length -= size
        if c_body is NULL or length == 0:
            break
        size = min(length, <Py_ssize_t> c_body.message.size - gather.body_at)
        gather.body_at += size
        gather.body_bytes -= size
        length -= size
        if gather.body_at == c_body.message.size:
            message_unref(c_body.message)
            gather.first += 1
            gather.body_at = 0
    close_up(gather)


cdef void close_up(Gather *gather) noexcept nogil:
    """Moves the rest to the front; otherwise the bytes and the list of bodies would grow without limit."""
    cdef int body
    if gather.first == gather.end:
        gather.first = gather.end = 0
        if gather.room > FIRST_ROOM:
            free(gather.bodies)
            gather.bodies = NULL
            gather.room = 0
    elif gather.first > gather.room // 2:
        gather.end -= gather.first
        memmove(gather.bodies, gather.bodies + gather.first, <size_t> gather.end * sizeof(Body))
        gather.first = 0
    if gather.buf_at == gather.buf.length and gather.first == gather.end:
        gather.buf_at = 0
        sendbuf_clear(&gather.buf)
    elif gather.buf_at > gather.buf.length - gather.buf_at:
        # More is sent than unsent, so each byte moves at most once, however slow the client.
        gather.buf.length -= gather.buf_at
        memmove(gather.buf.data, gather.buf.data + gather.buf_at, <size_t> gather.buf.length)
        for body in range(gather.first, gather.end):
            gather.bodies[body].at -= gather.buf_at
        gather.buf_at = 0


cdef void gather_cut(Gather *gather, Py_ssize_t length) noexcept nogil:
    cdef Py_ssize_t at = gather.buf_at, skip = gather.body_at
    cdef int body = gather.first
    while body < gather.end and gather.bodies[body].at - at < length:
        length -= gather.bodies[body].at - at
        at = gather.bodies[body].at
        length -= <Py_ssize_t> gather.bodies[body].message.size - skip
        skip = 0
        body += 1
    gather.buf.length = at + max(length, <Py_ssize_t> 0)
    while gather.end > body:
        gather.end -= 1
        gather.body_bytes -= gather.bodies[gather.end].message.size
        message_unref(gather.bodies[gather.end].message)


cdef void gather_free(Gather *gather) noexcept nogil:
    while gather.first < gather.end:
        message_unref(gather.bodies[gather.first].message)
        gather.first += 1
    free(gather.bodies)
    sendbuf_free(&gather.buf)
    memset(gather, 0, sizeof(gather[0]))
