# The body of a multi-publish: the number of messages, then size and bytes of each.
#
#   offset  bytes  field
#        0      4  number of messages, big-endian
#        4      4  size of the first message
#        8      n  its bytes, and so on
#
# The body ends with its last message. The declared size is unreliable: some clients omit the count or the sizes from
# it, and nsqd relies on the count alone.

from libc.stdint cimport int32_t, int64_t

cdef enum MpubState:
    MPUB_MORE           # incomplete
    MPUB_WHOLE
    MPUB_BAD_COUNT      # value: the count
    MPUB_BAD_SIZE       # value: a size of 0 or below; index: of the message
    MPUB_TOO_BIG        # value: a size above the limit
    MPUB_OVERRUN        # the messages exceed the body limit in total; value: size of the one that exceeds it

# Progress of checking a body; all zero for a new one.
cdef struct MpubCheck:
    int32_t count       # messages declared; 0: not read yet
    int32_t index       # messages checked so far
    int32_t value       # the number that the error is about
    int64_t at          # offset of the next size field

# Continues where the last call stopped; `have` bytes of the body are at c_body. No message may exceed max_message
# bytes, the messages in total (without their sizes) max_body bytes, and the count may not exceed what could fit
# there.
cdef int mpub_check(MpubCheck *check, const char *c_body, int64_t have, int64_t max_message,
                    int64_t max_body) noexcept nogil
# Checks the size field at c_at, of which `have` bytes have arrived: MPUB_WHOLE and, in value, the size; or as above.
cdef int mpub_next(MpubCheck *check, const char *c_at, int64_t have, int64_t max_message,
                   int64_t max_body) noexcept nogil
cdef bint mpub_passed(MpubCheck *check) noexcept nogil      # that message is complete; returns whether it was the last
cdef int64_t mpub_bytes(const MpubCheck *check) noexcept nogil      # of the messages checked, without their sizes
