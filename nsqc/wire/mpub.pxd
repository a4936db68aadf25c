# The body of a multi-publish: message count, then size and bytes of each message.
#
#   offset  bytes  field
#        0      4  number of messages, big-endian
#        4      4  size of the first message
#        8      n  its bytes, and so on
#
# The body ends with its last message. The size declared before it is no guide: clients in use leave the count or the
# sizes out of it, and nsqd reads on whatever it says.

from libc.stdint cimport int32_t, int64_t

cdef enum MpubState:
    MPUB_MORE           # not whole yet
    MPUB_WHOLE
    MPUB_BAD_COUNT      # value: the count
    MPUB_BAD_SIZE       # value: a size of zero or below; index: of which message
    MPUB_TOO_BIG        # value: a size above the limit
    MPUB_OVERRUN        # the messages together are above the limit for bodies; value: size of the one that passes it

# How far a body has been checked; zeroed for a new one.
cdef struct MpubCheck:
    int32_t count       # messages announced; 0: not read yet
    int32_t index       # messages checked so far
    int32_t value       # the number an error is about
    int64_t at          # offset of the next size field

# Goes on checking where the last call stopped; have bytes of the body lie at c_body. No message may be above
# max_message bytes, nor the count above what max_body bytes could hold, nor the messages together, sizes left out,
# above max_body.
cdef int mpub_check(MpubCheck *check, const char *c_body, int64_t have, int64_t max_message,
                    int64_t max_body) noexcept nogil
# Only the size field at c_at, of which have bytes have come: MPUB_WHOLE and, in value, the size; or as above.
cdef int mpub_next(MpubCheck *check, const char *c_at, int64_t have, int64_t max_message,
                   int64_t max_body) noexcept nogil
cdef bint mpub_passed(MpubCheck *check) noexcept nogil      # that message has come; whether it is the last one
cdef int64_t mpub_bytes(const MpubCheck *check) noexcept nogil      # of the messages checked, sizes left out
