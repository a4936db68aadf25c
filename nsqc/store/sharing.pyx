"""Groups publishers into one sync. See the .pxd."""

from libc.stdint cimport int64_t

from nsqc.store.clock cimport monotonic_ns

cdef int64_t LONGEST_NS = 500_000

cdef enum:
    SKIPPED = 16


cdef void sharing_began(Sharing *sharing) noexcept:
    sharing.enough = 0
    sharing.began_ns = monotonic_ns()


cdef void sharing_ended(Sharing *sharing, int64_t answered, int64_t waiting) noexcept:
    cdef int64_t now
    if answered == 0 or waiting == 0:
        return
    if sharing.skips > 0:
        sharing.skips -= 1
        return
    now = monotonic_ns()
    sharing.before = waiting
    sharing.enough = waiting + answered
    sharing.until_ns = now + min((now - sharing.began_ns) // 2, LONGEST_NS)


cdef bint sharing_waits(Sharing *sharing, int64_t waiting) noexcept:
    if sharing.enough == 0:
        return False
    if waiting < sharing.enough and monotonic_ns() < sharing.until_ns:
        return True
    if waiting <= sharing.before:
        sharing.skips = SKIPPED
    sharing.enough = 0
    return False
