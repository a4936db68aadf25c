# A message: one C allocation, header and body together, shared by the channels that hold it.
#
# Ownership: a holder of a Message pointer holds one reference and gives it back with message_unref(). A function that
# "takes" a message takes over the reference.

from libc.stdint cimport int64_t, uint32_t


cdef struct Message:
    uint32_t refs           # holders: queues, deliveries and, briefly, the command that made it
    uint32_t size           # of the body, bytes
    int64_t timestamp_ns    # when it was published, nanoseconds since 1970
    char id[16]             # as on the wire: 16 hexadecimal digits, no terminator
    char body[1]            # size bytes follow


# A message with one reference, its body copied from c_body, or not set if c_body is NULL. NULL: no memory.
cdef Message *message_new(const char *c_id, int64_t timestamp_ns, const char *c_body, uint32_t size) noexcept nogil
cdef void message_ref(Message *message) noexcept nogil
cdef void message_unref(Message *message) noexcept nogil

# Messages that exist now, for leak checks in the debug build; always 0 in a release build.
cdef int64_t message_alive() noexcept nogil
