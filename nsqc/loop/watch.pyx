"""Watches the iterations of a uvloop. See the .pxd."""

cimport cython
from libc.stdint cimport INT64_MAX, int64_t
from libc.stdlib cimport calloc

from nsqc.loop.uv cimport hooks_close, hooks_open, now_ns, uv_now

import time

cdef enum:
    NS_PER_MS = 1000000
    WORTH = 4                   # a handler is named if it took this fraction of the limit

spans.longest_ns = INT64_MAX
cdef str longest = ""


cdef void name_span(const char *c_kind, object what, int64_t ns) noexcept:
    name(c_kind.decode(), what, ns)


cdef void name(str kind, object what, int64_t ns) noexcept:
    global longest
    if spans.named and ns - (ns >> 3) <= spans.longest_ns:
        return      # the other handler ran inside it and is more specific
    spans.longest_ns = ns
    spans.named = True
    try:
        longest = f"{kind} {what}".rstrip()
    except Exception:
        longest = kind


def span_began() -> int:
    """Monotonic nanoseconds, for handlers in Python; pass them to span_ended()."""
    return time.monotonic_ns()


def span_ended(int64_t began_ns, str kind not None, what=""):
    """Ends a handler in Python; kind and str(what) name it."""
    cdef int64_t ns = now_ns() - began_ns
    if ns > spans.longest_ns:
        name(kind, what, ns)


# ---------------------------------------------------------------------- in the loop, without the GIL

cdef void after_wait(void *state) noexcept nogil:
    cdef WatchState *of = <WatchState *> state
    of.began_ns = <int64_t> uv_now(of.loop) * NS_PER_MS


cdef void before_wait(void *state) noexcept nogil:
    cdef WatchState *of = <WatchState *> state
    cdef int64_t ns
    if of.limit_ns == 0:
        return
    ns = now_ns() - of.began_ns
    if of.began_ns and ns > of.limit_ns:
        told(of, ns)
    of.began_ns = 0
    spans.longest_ns = of.limit_ns / WORTH
    spans.named = False


cdef void told(WatchState *state, int64_t ns) noexcept with gil:
    if state.watch is not NULL:
        (<Watch> state.watch)._tell(ns)


# ---------------------------------------------------------------------- from outside

@cython.final
cdef class Watch:
    """Watches one loop until close(). One per process at a time."""

    def __init__(self, loop, int64_t limit_ns, report):
        """Calls report(nanoseconds, nanoseconds of the longest handler, its name) for each iteration that takes longer
        than limit_ns. The name is empty if no handler took a quarter of that. Raises OSError.
        """
        self.state = <WatchState *> calloc(1, sizeof(WatchState))
        if self.state is NULL:
            raise MemoryError
        self.hooks = hooks_open(loop, before_wait, after_wait, self.state)
        self.state.loop = self.hooks.loop
        self.state.watch = <void *> self
        self.report = report
        self._set_limit(limit_ns)

    def set_limit(self, int64_t limit_ns):
        """Same as the constructor's."""
        self._set_limit(limit_ns)

    cdef void _set_limit(self, int64_t limit_ns) noexcept:
        if self.hooks is not NULL:
            self.state.limit_ns = limit_ns
            self.state.began_ns = 0         # the current iteration is not reported
            spans.longest_ns = limit_ns / WORTH
            spans.named = False

    def close(self):
        """Stops watching. Must be called before the loop closes, which would treat the handles as its own."""
        if self.hooks is NULL:
            return
        self.state.limit_ns = 0
        self.state.watch = NULL
        spans.longest_ns = INT64_MAX
        hooks_close(self.hooks)
        self.hooks = NULL

    def __dealloc__(self):
        # The loop may still run the hooks.
        if self.hooks is not NULL:
            self.state.watch = NULL

    def _tell(self, int64_t ns):
        try:
            self.report(ns, spans.longest_ns if spans.named else 0, longest if spans.named else "")
        except Exception:
            # A logging error must not end the loop.
            return
