# How long the loop's iterations take, and which handler took longest in each.
#
# Hooks enclose an iteration (uv.pxd). The loop's time is when its wait for events ended; after_wait() notes it, and
# before_wait(), right before the next wait, compares it with the clock. That is one look at the clock in an iteration,
# without the GIL, and nothing at all while the loop waits. A thread that watches a heartbeat would wake up
# both, all the time, and its samples would show no compiled function: these have no Python frames.
#
# So handlers name themselves, when they end, and only if they took long: what is not slow costs one comparison.

from libc.stdint cimport int64_t
from nsqc.loop.uv cimport Hooks


cdef struct Spans:
    int64_t longest_ns      # of the handlers in this iteration, at least a quarter of the limit; INT64_MAX: unwatched
    bint named              # one of them took longer than that quarter

cdef Spans spans

cdef void name_span(const char *c_kind, object what, int64_t ns) noexcept

# The end of a handler, or of a part that deserves a name. what: str() of it names the connection, topic or request.
cdef inline void span_over(int64_t ns, const char *c_kind, object what) noexcept:
    if ns > spans.longest_ns:
        name_span(c_kind, what, ns)


cdef struct WatchState:
    void *loop              # uv_loop_t, borrowed
    void *watch             # the Watch, borrowed; NULL: closed
    int64_t limit_ns        # 0: off
    int64_t began_ns        # when the present iteration began; 0: unknown


cdef class Watch:
    cdef Hooks *hooks
    cdef WatchState *state          # owned by the hooks
    cdef object report
    cdef void _set_limit(self, int64_t limit_ns) noexcept
