"""Hooks around the wait of uvloop: durations of iterations, busy polling, unread sockets. See the .pxd."""

cimport cython
import time
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport INT64_MAX, int64_t, uint32_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset
from posix.dlfcn cimport RTLD_LAZY, dlopen, dlsym
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec
from posix.unistd cimport close


# ====================================================================== uv

cdef enum:
    UV_CHECK = 2                # libuv's numbers of the kinds of handles
    UV_IDLE = 6
    UV_PREPARE = 9
    METRICS = 16                # 64-bit numbers in uv_metrics_t
    EVENTS = 1                  # the number of events handled so far

ctypedef void (*uv_callback)(void *handle) noexcept nogil
cdef size_t (*uv_handle_size)(int kind) noexcept nogil
cdef int (*uv_prepare_init)(void *loop, void *handle) noexcept nogil
cdef int (*uv_prepare_start)(void *handle, uv_callback callback) noexcept nogil
cdef int (*uv_check_init)(void *loop, void *handle) noexcept nogil
cdef int (*uv_check_start)(void *handle, uv_callback callback) noexcept nogil
cdef int (*uv_idle_init)(void *loop, void *handle) noexcept nogil
cdef int (*uv_idle_start)(void *handle, uv_callback callback) noexcept nogil
cdef int (*uv_idle_stop)(void *handle) noexcept nogil
cdef int (*uv_metrics_info)(void *loop, uint64_t *metrics) noexcept nogil
cdef void (*uv_unref)(void *handle) noexcept nogil
cdef void (*uv_close)(void *handle, uv_callback callback) noexcept nogil


cdef int64_t now_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t> now.tv_sec * 1000000000 + now.tv_nsec


cdef inline Hooks **hooks_of(void *handle) noexcept nogil:
    """The first member of each handle, `data`, belongs to its user."""
    return <Hooks **> handle


cdef void on_prepare(void *handle) noexcept nogil:
    cdef Hooks *hooks = hooks_of(handle)[0]
    hooks.before(hooks.state)


cdef void on_check(void *handle) noexcept nogil:
    cdef Hooks *hooks = hooks_of(handle)[0]
    hooks.after(hooks.state)


cdef void on_idle(void *handle) noexcept nogil:
    pass        # a started idle handle makes waits return at once


cdef void on_closed(void *handle) noexcept nogil:
    cdef Hooks *hooks = hooks_of(handle)[0]
    hooks.open -= 1
    if hooks.open == 0:
        release(hooks)


cdef void release(Hooks *hooks) noexcept nogil:
    free(hooks.prepare)
    free(hooks.check)
    free(hooks.idle)
    free(hooks.state)
    free(hooks)


cdef void *symbol(void *library, const char *c_name) except NULL:
    cdef void *found = dlsym(library, c_name)
    if found is NULL:
        raise OSError(f"uvloop has no {c_name.decode()}")
    return found


cdef int find_symbols() except -1:
    """Raises OSError if uvloop's own libuv does not export its functions."""
    global uv_handle_size, uv_prepare_init, uv_prepare_start, uv_check_init, uv_check_start, uv_unref, uv_close
    global uv_idle_init, uv_idle_start, uv_idle_stop, uv_metrics_info, uv_now, uv_backend_timeout
    import uvloop       # here: tools and Spark's workers import this module, and have no loop

    cdef bytes path = uvloop.loop.__file__.encode()
    cdef void *library
    library = dlopen(path, RTLD_LAZY)       # already loaded: this adds a reference that is never released
    if library is NULL:
        raise OSError("uvloop's library cannot be opened")
    uv_handle_size = <size_t (*)(int) noexcept nogil> symbol(library, b"uv_handle_size")
    uv_prepare_init = <int (*)(void *, void *) noexcept nogil> symbol(library, b"uv_prepare_init")
    uv_prepare_start = <int (*)(void *, uv_callback) noexcept nogil> symbol(library, b"uv_prepare_start")
    uv_check_init = <int (*)(void *, void *) noexcept nogil> symbol(library, b"uv_check_init")
    uv_check_start = <int (*)(void *, uv_callback) noexcept nogil> symbol(library, b"uv_check_start")
    uv_idle_init = <int (*)(void *, void *) noexcept nogil> symbol(library, b"uv_idle_init")
    uv_idle_start = <int (*)(void *, uv_callback) noexcept nogil> symbol(library, b"uv_idle_start")
    uv_idle_stop = <int (*)(void *) noexcept nogil> symbol(library, b"uv_idle_stop")
    uv_metrics_info = <int (*)(void *, uint64_t *) noexcept nogil> symbol(library, b"uv_metrics_info")
    uv_unref = <void (*)(void *) noexcept nogil> symbol(library, b"uv_unref")
    uv_close = <void (*)(void *, uv_callback) noexcept nogil> symbol(library, b"uv_close")
    uv_now = <uint64_t (*)(void *) noexcept nogil> symbol(library, b"uv_now")
    uv_backend_timeout = <int (*)(void *) noexcept nogil> symbol(library, b"uv_backend_timeout")
    return 0


cdef Hooks *hooks_open(object loop, Hook before, Hook after, void *state) except NULL:
    import uvloop

    cdef Hooks *hooks = NULL
    try:
        find_symbols()
        hooks = <Hooks *> calloc(1, sizeof(Hooks))
        if hooks is NULL:
            raise MemoryError
        hooks.prepare = calloc(1, uv_handle_size(UV_PREPARE))
        hooks.check = calloc(1, uv_handle_size(UV_CHECK))
        hooks.idle = calloc(1, uv_handle_size(UV_IDLE))
        if hooks.prepare is NULL or hooks.check is NULL or hooks.idle is NULL:
            raise MemoryError
        hooks.loop = PyCapsule_GetPointer(uvloop.loop.libuv_get_loop_t_ptr(loop), NULL)
    except BaseException:
        if hooks is NULL:
            free(state)
        else:
            hooks.state = state
            release(hooks)
        raise
    hooks.before = before
    hooks.after = after
    hooks.state = state
    uv_prepare_init(hooks.loop, hooks.prepare)
    uv_check_init(hooks.loop, hooks.check)
    uv_idle_init(hooks.loop, hooks.idle)
    hooks.open = 3
    hooks_of(hooks.prepare)[0] = hooks
    hooks_of(hooks.check)[0] = hooks
    hooks_of(hooks.idle)[0] = hooks
    uv_prepare_start(hooks.prepare, on_prepare)
    uv_check_start(hooks.check, on_check)
    # They do not keep the loop running.
    uv_unref(hooks.prepare)
    uv_unref(hooks.check)
    uv_unref(hooks.idle)
    return hooks


cdef void hooks_close(Hooks *hooks) noexcept:
    """Must be called before the loop is closed. The loop frees hooks and state in its next iteration."""
    uv_close(hooks.prepare, on_closed)
    uv_close(hooks.check, on_closed)
    uv_close(hooks.idle, on_closed)


cdef void hooks_hurry(Hooks *hooks, bint hurries) noexcept nogil:
    if hurries:
        uv_idle_start(hooks.idle, on_idle)
    else:
        uv_idle_stop(hooks.idle)


cdef uint64_t hooks_events(Hooks *hooks) noexcept nogil:
    cdef uint64_t[METRICS] metrics
    uv_metrics_info(hooks.loop, metrics)
    return metrics[EVENTS]


# ====================================================================== watch

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

cdef void begin_iteration(void *state) noexcept nogil:
    cdef WatchState *of = <WatchState *> state
    of.began_ns = <int64_t> uv_now(of.loop) * NS_PER_MS


cdef void end_iteration(void *state) noexcept nogil:
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

    def __init__(self, loop: AbstractEventLoop, int64_t limit_ns, report: Callable[[int, int, str], None]):
        """Calls report(nanoseconds, nanoseconds of the longest handler, its name) for each iteration that takes longer
        than limit_ns. The name is empty if no handler took a quarter of that. Raises OSError.
        """
        self.state = <WatchState *> calloc(1, sizeof(WatchState))
        if self.state is NULL:
            raise MemoryError
        self.hooks = hooks_open(loop, end_iteration, begin_iteration, self.state)
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


# ====================================================================== busypoll

cdef extern from "<sched.h>" nogil:
    int sched_yield()


cdef void before_wait(void *state) noexcept nogil:
    cdef BusyPollState *of = <BusyPollState *> state
    hooks_hurry(of.hooks, False)
    if of.most_ns == 0 or uv_backend_timeout(of.hooks.loop) == 0:
        of.since_ns = 0
        return
    if of.since_ns == 0:
        of.since_ns = now_ns()
        of.polling = of.short_waits >= DENSE
        of.polls += of.polling
    elif now_ns() - of.since_ns >= of.most_ns:
        of.polling = False      # sleep
    else:
        sched_yield()           # the client may need this processor
    of.events = hooks_events(of.hooks)
    hooks_hurry(of.hooks, of.polling)


cdef void after_wait(void *state) noexcept nogil:
    cdef BusyPollState *of = <BusyPollState *> state
    if of.since_ns == 0 or of.polling and hooks_events(of.hooks) == of.events:
        return                  # it polls again
    if now_ns() - of.since_ns <= of.most_ns:
        of.short_waits = min(of.short_waits + 1, <int> MOST_DENSE)
        of.hits += of.polling
    else:
        of.short_waits = max(of.short_waits - LONG_WAIT, 0)
    of.since_ns = 0


@cython.final
cdef class BusyPoll:
    """Busy polling of one uvloop, until close()."""

    def __init__(self, loop: AbstractEventLoop, int64_t most_ns):
        """most_ns: nanoseconds to poll; 0: off. Raises OSError if uvloop does not export libuv's functions."""
        self.state = <BusyPollState *> calloc(1, sizeof(BusyPollState))
        if self.state is NULL:
            raise MemoryError
        self.state.most_ns = most_ns
        self.hooks = self.state.hooks = hooks_open(loop, before_wait, after_wait, self.state)

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


# ====================================================================== unread

cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        int fd
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_create1(int flags)
    int epoll_ctl(int epfd, int op, int fd, epoll_event *event)
    int epoll_wait(int epfd, epoll_event *events, int most, int timeout)
    int EPOLL_CLOEXEC
    int EPOLL_CTL_ADD
    int EPOLL_CTL_DEL
    uint32_t EPOLLIN

cdef enum:
    LOOKED_AT = 16          # most unread sockets found by one check
    APART_NS = 10000000     # a socket seen unread twice this far apart may have been read in between
    STUCK_NS = 50000000


@cython.final
cdef class Unread:
    """The sockets of light clients."""

    def __cinit__(self):
        self.fd = epoll_create1(EPOLL_CLOEXEC)

    def __dealloc__(self):
        if self.fd >= 0:
            close(self.fd)
        free(self.inputs)

    cpdef void add(self, int fd) noexcept:
        cdef Input *grown
        cdef int room
        if self.fd < 0 or fd < 0:
            return
        if fd >= self.room:
            room = max(fd + 1, 2 * self.room)
            grown = <Input *> realloc(self.inputs, <size_t> room * sizeof(Input))
            if grown is NULL:
                return
            memset(grown + self.room, 0, <size_t> (room - self.room) * sizeof(Input))
            self.inputs = grown
            self.room = room
        self.inputs[fd].watched = False
        self._watch(fd, True)

    def note(self, int fd, int64_t took_ns):
        """Records that a client was read, its data processed for this many nanoseconds, and answered."""
        self.was_read(fd, took_ns, True)

    cdef void was_read(self, int fd, int64_t took_ns, bint answers) noexcept:
        cdef bint quick
        if not 0 <= fd < self.room:
            return
        # A client whose reads take about QUICK_NS does not flap.
        quick = took_ns <= (QUICK_NS if self.inputs[fd].watched else QUICK_NS // 2)
        self.inputs[fd].since_ns = 0
        if quick:
            self.quick_ns += took_ns
            self.owes |= answers
        if quick != self.inputs[fd].watched:
            self._watch(fd, quick)

    cdef bint any(self, int64_t now_ns) noexcept:
        cdef epoll_event[LOOKED_AT] events
        cdef Input *found
        cdef int index, count
        cdef bint waits = False
        if self.owes:
            return True
        if self.fd < 0:
            return False
        count = epoll_wait(self.fd, events, LOOKED_AT, 0)
        for index in range(count):
            found = &self.inputs[events[index].data.fd]
            if not found.watched:
                continue        # closed, except for a duplicate that streams an answer
            if found.since_ns == 0 or now_ns - found.seen_ns > APART_NS:
                found.since_ns = now_ns
            found.seen_ns = now_ns
            if now_ns - found.since_ns > STUCK_NS:
                self._watch(events[index].data.fd, False)
            else:
                waits = True
        self.noticed = waits
        return waits

    def waits(self, int64_t now_ns) -> bool:
        """Whether a client waits, to be read or, since note(), for its answer."""
        return self.any(now_ns)

    cpdef void answered(self) noexcept:
        self.noticed = self.owes = False

    cdef void _watch(self, int fd, bint watched) noexcept:
        cdef epoll_event event
        memset(&event, 0, sizeof(event))
        event.events = EPOLLIN
        event.data.fd = fd
        epoll_ctl(self.fd, EPOLL_CTL_ADD if watched else EPOLL_CTL_DEL, fd, &event)
        self.inputs[fd].watched = watched
        self.inputs[fd].since_ns = 0
