# A message: one C allocation for header and body, shared by the channels that hold it.
#
# Ownership: a holder of a Message pointer holds one reference and drops it with message_unref(). A function that
# "takes" a message takes over the reference.

from libc.stdint cimport int64_t, uint32_t


cdef struct Message:
    uint32_t refs           # holders: queues, deliveries and, briefly, the command that created it
    uint32_t size           # of the body, bytes
    int64_t timestamp_ns    # publish time, nanoseconds since 1970
    char id[16]             # as on the wire: 16 hexadecimal digits, no terminator
    char body[1]            # size bytes follow


# A message with one reference. The body is copied from c_body, or unset if c_body is NULL. NULL: no memory.
cdef Message *message_new(const char *c_id, int64_t timestamp_ns, const char *c_body, uint32_t size) noexcept nogil
cdef void message_ref(Message *message) noexcept nogil
cdef void message_unref(Message *message) noexcept nogil

# Live messages, for leak checks in the debug build; always 0 in a release build.
cdef int64_t message_alive() noexcept nogil
