# Measures how long the loop's iterations take, and which handler took longest in each.
#
# Hooks enclose an iteration (uv.pxd). The loop's time is the end of its wait for events; after_wait() stores it, and
# before_wait(), right before the next wait, compares it with the clock. That is one clock read per iteration, without
# the GIL, and no cost while the loop waits. A thread watching a heartbeat would keep waking both threads, and its
# samples would miss compiled functions, which have no Python frames.
#
# So handlers report their name when they end, and only if they took long: a fast handler costs one comparison.

from libc.stdint cimport int64_t
from nsqc.loop.uv cimport Hooks


cdef struct Spans:
    int64_t longest_ns      # of this iteration's handlers, at least a quarter of the limit; INT64_MAX: not watched
    bint named              # a handler took longer than that quarter

cdef Spans spans

cdef void name_span(const char *c_kind, object what, int64_t ns) noexcept

# Ends a handler, or a part that deserves a name. what: str() of it names the connection, topic or request.
cdef inline void span_over(int64_t ns, const char *c_kind, object what) noexcept:
    if ns > spans.longest_ns:
        name_span(c_kind, what, ns)


cdef struct WatchState:
    void *loop              # uv_loop_t, borrowed
    void *watch             # the Watch, borrowed; NULL: closed
    int64_t limit_ns        # 0: off
    int64_t began_ns        # start of the current iteration; 0: unknown


cdef class Watch:
    cdef Hooks *hooks
    cdef WatchState *state          # owned by the hooks
    cdef object report
    cdef void _set_limit(self, int64_t limit_ns) noexcept
