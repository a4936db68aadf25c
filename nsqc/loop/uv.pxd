# Hooks around the wait of uvloop: durations of iterations, busy polling, unread sockets.

from libc.stdint cimport int64_t, uint64_t


# ====================================================================== uv
# libuv, as contained in uvloop: two handles around the loop's wait for events, and libuv's own data about it.
#
# Hooks run in the loop's thread, without the GIL.

ctypedef void (*Hook)(void *state) noexcept nogil


cdef struct Hooks:
    void *prepare
    void *check
    void *idle
    void *loop              # uv_loop_t, borrowed
    Hook before             # runs right before the wait
    Hook after              # runs after the wait and the handlers of its events
    void *state             # their argument, from malloc; owned
    int open                # handles that are not closed yet

# Takes ownership of state, even if it raises: OSError if uvloop does not export libuv's functions, MemoryError.
cdef Hooks *hooks_open(object loop, Hook before, Hook after, void *state) except NULL

cdef void hooks_close(Hooks *hooks) noexcept       # before the loop closes; frees them and their state later

# Whether the loop's waits return at once from now on, as if something else were due.
cdef void hooks_hurry(Hooks *hooks, bint hurries) noexcept nogil
cdef uint64_t hooks_events(Hooks *hooks) noexcept nogil             # number of events that the loop has handled

# Set once hooks_open() has returned.
cdef uint64_t (*uv_now)(void *loop) noexcept nogil                  # milliseconds: end of the last wait
cdef int (*uv_backend_timeout)(void *loop) noexcept nogil           # milliseconds of the next wait; 0: no wait

cdef int64_t now_ns() noexcept nogil                                # monotonic


# ====================================================================== watch
# Measures how long the loop's iterations take, and which handler took longest in each.
#
# Hooks enclose an iteration (uv.pxd). The loop's time is the end of its wait for events; after_wait() stores it, and
# before_wait(), right before the next wait, compares it with the clock. That is one clock read per iteration, without
# the GIL, and no cost while the loop waits. A thread watching a heartbeat would keep waking both threads, and its
# samples would miss compiled functions, which have no Python frames.
#
# So handlers report their name when they end, and only if they took long: a fast handler costs one comparison.

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


# ====================================================================== busypoll
# Busy polling: under dense traffic, the loop polls for events for a moment before it sleeps.
#
# The kernel needs longer to wake a sleeping thread than nsqc needs to execute a command, so a client that sends one
# command at a time mostly waits for the wakeup. But polling burns a processor. So it starts only after many short waits
# in a row, lasts no longer than such a client needs to send its next command, and stops once waits get long.

cdef enum:
    DENSE = 16              # short waits in a row before the loop polls
    MOST_DENSE = 32         # counter limit
    LONG_WAIT = 8           # subtracted for a wait that was not short


cdef struct BusyPollState:
    Hooks *hooks            # borrowed
    int64_t most_ns         # how long to poll, and the longest short wait; 0: off
    int64_t since_ns        # start of the current wait; 0: the loop does not wait in this iteration
    bint polling            # the wait is divided into waits that return at once, each in an iteration of its own
    uint64_t events         # hooks_events() before the last of those
    int short_waits         # short waits counted, reduced by long ones; 0 to MOST_DENSE
    int64_t polls           # waits that began with polling
    int64_t hits            # of these, waits that ended during polling, before the loop slept


cdef class BusyPoll:
    cdef Hooks *hooks
    cdef BusyPollState *state       # owned by the hooks


# ====================================================================== unread
# Tells long work whether a light client is waiting to be read while the loop is busy.
#
# An epoll set separate from the loop's own holds the sockets of light clients. Long work checks it now and then: one
# system call that does not block. A client whose last read took longer than QUICK_NS counts as heavy and is left out,
# so work for one heavy client does not stop for another. A socket unread for STUCK_NS is ignored: nothing reads it.

cdef enum:
    QUICK_NS = 50000        # longest read of a light client, commands included

cdef struct Input:          # of one descriptor
    bint watched            # is in the set
    int64_t since_ns        # monotonic: unread since then, as far as known; 0: not seen unread
    int64_t seen_ns         # when it was last seen unread


cdef class Unread:
    cdef int fd             # of the set; -1: none, and no client is ever found
    cdef Input *inputs      # owned; indexed by descriptor
    cdef int room
    cdef int64_t quick_ns   # duration of those clients' reads since a caller reset it to 0
    cdef bint noticed       # a client was found waiting
    cdef bint owes          # one was read, and its answer leaves at the end of the iteration: see answered()

    cpdef void add(self, int fd) noexcept           # a client's socket; closing it is enough to remove it
    # Records a read; took_ns includes processing its data. answers: the client, if light, waits for an answer.
    cdef void was_read(self, int fd, int64_t took_ns, bint answers) noexcept
    cdef bint any(self, int64_t now_ns) noexcept            # whether a client waits, to be read or for its answer
    cpdef void answered(self) noexcept
    cdef void _watch(self, int fd, bint watched) noexcept
