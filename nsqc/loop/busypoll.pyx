"""Polls for events before the loop sleeps. See the .pxd."""

cimport cython
from libc.stdlib cimport calloc

from nsqc.loop.uv cimport hooks_close, hooks_open, now_ns, uv_backend_fd, uv_backend_timeout

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd *fds, unsigned long count, int timeout)
    short POLLIN

cdef extern from "<sched.h>" nogil:
    int sched_yield()


cdef void before_wait(void *state) noexcept nogil:
    cdef BusyPollState *of = <BusyPollState *> state
    cdef pollfd ready
    cdef int64_t now
    of.since_ns = 0
    if of.most_ns == 0 or uv_backend_timeout(of.loop) == 0:
        return
    now = of.since_ns = now_ns()
    if of.short_waits < DENSE:
        return
    of.polls += 1
    # poll() on the epoll descriptor consumes nothing: the loop's own wait still gets the events.
    ready.fd = uv_backend_fd(of.loop)
    ready.events = POLLIN
    while poll(&ready, 1, 0) == 0:
        sched_yield()       # the client may need this processor
        now = now_ns()
        if now - of.since_ns >= of.most_ns:
            return
    of.hits += 1


cdef void after_wait(void *state) noexcept nogil:
    cdef BusyPollState *of = <BusyPollState *> state
    if of.since_ns == 0:
        return
    if now_ns() - of.since_ns <= of.most_ns:
        of.short_waits = min(of.short_waits + 1, <int> MOST_DENSE)
    else:
        of.short_waits = max(of.short_waits - LONG_WAIT, 0)


@cython.final
cdef class BusyPoll:
    """Busy polling of one uvloop, until close()."""

    def __init__(self, loop, int64_t most_ns):
        """most_ns: nanoseconds to poll; 0: off. Raises OSError if uvloop does not export libuv's functions."""
        self.state = <BusyPollState *> calloc(1, sizeof(BusyPollState))
        if self.state is NULL:
            raise MemoryError
        self.state.most_ns = most_ns
        self.hooks = hooks_open(loop, before_wait, after_wait, self.state)
        self.state.loop = self.hooks.loop

    def set_limit(self, int64_t most_ns):
        """Same as the constructor's."""
        if self.hooks is not NULL:
            self.state.most_ns = most_ns

    @property
    def counts(self) -> tuple[int, int]:
        """Waits that began with polling, and how many of them ended during polling."""
        if self.hooks is NULL:
            return (0, 0)
        return (self.state.polls, self.state.hits)

    def close(self):
        """Stops polling. Must be called before the loop closes, which would treat the handles as its own."""
        if self.hooks is not NULL:
            self.state.most_ns = 0
            hooks_close(self.hooks)
            self.hooks = NULL
