"""Waiting light clients. See the .pxd."""

cimport cython
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset
from posix.unistd cimport close

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
