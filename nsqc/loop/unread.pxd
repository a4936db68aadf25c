# Tells long work whether a light client is waiting to be read while the loop is busy.
#
# An epoll set separate from the loop's own holds the sockets of light clients. Long work checks it now and then: one
# system call that does not block. A client whose last read took longer than QUICK_NS counts as heavy and is left out,
# so work for one heavy client does not stop for another. A socket unread for STUCK_NS is ignored: nothing reads it.

from libc.stdint cimport int64_t

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
