"""Checks multi-publish bodies as they arrive. Creates no messages; knows only bytes."""

from libc.stdint cimport int64_t

from nsqc.wire.hton cimport load_i32

cdef extern from "<string.h>":
    void *memrchr(const void *s, int c, size_t n) nogil


cdef int64_t mpub_bytes(const MpubCheck *check) noexcept nogil:
    return check.at - 4 - 4 * <int64_t> check.index


cdef int mpub_check(MpubCheck *check, const char *c_body, int64_t have, int64_t max_message,
                    int64_t max_body) noexcept nogil:
    cdef int state
    if check.count == 0:
        if have < 4:
            return MPUB_MORE
        check.value = load_i32(c_body)
        # The smallest message takes five bytes, four of them for its size.
        if check.value <= 0 or check.value > (max_body - 4) // 5:
            return MPUB_BAD_COUNT
        check.count = check.value
        check.at = 4
    while check.index < check.count:
        state = mpub_next(check, c_body + check.at, have - check.at, max_message, max_body)
        if state != MPUB_WHOLE:
            return state
        if check.at + 4 + check.value > have:
            return MPUB_MORE
        mpub_passed(check)
    return MPUB_WHOLE


cdef int mpub_next(MpubCheck *check, const char *c_at, int64_t have, int64_t max_message,
                   int64_t max_body) noexcept nogil:
    if have < 4:
        return MPUB_MORE
    check.value = load_i32(c_at)
    if check.value <= 0:
        return MPUB_BAD_SIZE
    if check.value > max_message:
        return MPUB_TOO_BIG
    # Sizes do not count: a client that omits them from the declared size may send messages up to the limit.
    if mpub_bytes(check) + check.value > max_body:
        return MPUB_OVERRUN
    return MPUB_WHOLE


cdef bint mpub_passed(MpubCheck *check) noexcept nogil:
    check.at += 4 + <int64_t> check.value
    check.index += 1
    return check.index == check.count


def has_long_line(bytes body not None, Py_ssize_t end, Py_ssize_t limit) -> bool:
    """Whether any line that ends before end has more than limit bytes."""
    cdef const char *c_at = <const char *> body
    cdef const char *c_end = c_at + min(end, len(body))
    cdef const char *c_feed
    while c_end - c_at > limit:
        # The last position where this line may end. Earlier ends are short enough.
        c_feed = <const char *> memrchr(c_at, c'\n', limit + 1)
        if c_feed is NULL:
            return True
        c_at = c_feed + 1
    return False


def check(bytes body not None, max_msg_size, max_body_size) -> int:
    """Where the messages of a complete body end; -1 for a bad count, -2 for a bad message."""
    cdef MpubCheck progress
    progress.count = progress.index = progress.value = 0
    progress.at = 0
    if mpub_check(&progress, body, len(body), max_msg_size, max_body_size) == MPUB_WHOLE:
        return progress.at
    return -1 if progress.count == 0 else -2
