# The body of a multi-publish: the number of messages, then size and bytes of each.
#
#   offset  bytes  field
#        0      4  number of messages, big-endian
#        4      4  size of the first message
#        8      n  its bytes, and so on
#
# The body ends with its last message. The size declared before it cannot be relied on: some clients do not include the
# count or the sizes in it, and nsqd goes by the count alone.

from libc.stdint cimport int32_t, int64_t

cdef enum MpubState:
    MPUB_MORE           # incomplete
    MPUB_WHOLE
    MPUB_BAD_COUNT      # value: the count
    MPUB_BAD_SIZE       # value: a size of 0 or below; index: of which message
    MPUB_TOO_BIG        # value: a size above the limit
    MPUB_OVERRUN        # all messages together exceed the limit for bodies; value: size of the one that exceeds it

# How far a body has been checked; all zero for a new one.
cdef struct MpubCheck:
    int32_t count       # messages declared; 0: not read yet
    int32_t index       # messages checked so far
    int32_t value       # the number an error is about
    int64_t at          # offset of the next size field

# Continues to check where the last call stopped; have bytes of the body are at c_body. No message may exceed
# max_message bytes, nor all messages together, without their sizes, max_body bytes, nor the count what those could
# hold.
cdef int mpub_check(MpubCheck *check, const char *c_body, int64_t have, int64_t max_message,
                    int64_t max_body) noexcept nogil
# Checks the size field at c_at, of which have bytes have come: MPUB_WHOLE and, in value, the size; or as above.
cdef int mpub_next(MpubCheck *check, const char *c_at, int64_t have, int64_t max_message,
                   int64_t max_body) noexcept nogil
cdef bint mpub_passed(MpubCheck *check) noexcept nogil      # that message is complete; whether it is the last one
cdef int64_t mpub_bytes(const MpubCheck *check) noexcept nogil      # of the messages checked, without their sizes
