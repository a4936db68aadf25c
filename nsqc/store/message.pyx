"""Allocates and reference-counts messages. Knows no queues, no disk and no wire format."""

from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcpy

from nsqc.store.slab cimport slab_alloc, slab_free

cdef extern from *:
    """
    #include <stddef.h>
    static long nsqc_messages_alive = 0;
    #if NSQC_DEBUG
    #define NSQC_COUNT_MESSAGE(n) (nsqc_messages_alive += (n))
    #else
    #define NSQC_COUNT_MESSAGE(n) ((void) 0)
    #endif
    """
    long nsqc_messages_alive
    void NSQC_COUNT_MESSAGE(long) nogil

cdef enum:
    HEAD_BYTES = 32         # before the body; checked here

if <size_t> &(<Message *> NULL).body[0] != HEAD_BYTES:
    raise ImportError("Message has an unexpected layout on this platform")


cdef Message *message_new(const char *c_id, int64_t timestamp_ns, const char *c_body, uint32_t size) noexcept nogil:
    cdef Message *message = <Message *> slab_alloc(HEAD_BYTES + <size_t> size)
    if message is NULL:
        return NULL
    message.refs = 1
    message.size = size
    message.timestamp_ns = timestamp_ns
    memcpy(message.id, c_id, 16)
    if c_body is not NULL:
        memcpy(message.body, c_body, size)
    NSQC_COUNT_MESSAGE(1)
    return message


cdef void message_ref(Message *message) noexcept nogil:
    message.refs += 1


cdef void message_unref(Message *message) noexcept nogil:
    message.refs -= 1
    if message.refs == 0:
        NSQC_COUNT_MESSAGE(-1)
        slab_free(message, HEAD_BYTES + <size_t> message.size)


cdef int64_t message_alive() noexcept nogil:
    return nsqc_messages_alive


def alive() -> int:
    """Live messages; always 0 in a release build, which does not count them."""
    return message_alive()
