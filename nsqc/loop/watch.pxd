# How long the loop's iterations take, and which handler took longest in each.
#
# Two handles of libuv enclose an iteration. The loop's time is what it was when the wait for events ended; `check`
# notes it, and `prepare`, right before the next wait, compares it with the clock. That is one look at the clock in an
# iteration, without the GIL, and nothing at all while the loop waits. A thread that watches a heartbeat would wake up
# both, all the time, and its samples would show no compiled function: these have no Python frames.
#
# So handlers name themselves, when they end, and only if they took long: what is not slow costs one comparison.

from libc.stdint cimport int64_t


cdef struct Spans:
    int64_t longest_ns      # of the handlers in this iteration, at least a quarter of the limit; INT64_MAX: unwatched
    bint named              # one of them took longer than that quarter

cdef Spans spans

cdef void name_span(const char *c_kind, object what, int64_t ns) noexcept

# The end of a handler, or of a part that deserves a name. what: str() of it names the connection, topic or request.
cdef inline void span_over(int64_t ns, const char *c_kind, object what) noexcept:
    if ns > spans.longest_ns:
        name_span(c_kind, what, ns)


cdef struct Handles:
    # What libuv's callbacks work on; freed when both handles are closed.
    void *prepare
    void *check
    void *loop
    void *watch             # the Watch, borrowed; NULL: closed
    int64_t limit_ns        # 0: off
    int64_t began_ns        # when the present iteration began; 0: unknown
    int open                # handles that are not closed yet


cdef class Watch:
    cdef Handles *handles
    cdef object report
    cdef void _set_limit(self, int64_t limit_ns) noexcept
