# Whether a client that asks for little waits to be read, while the loop works for others.
#
# An epoll set beside the loop's own has the sockets of those clients, and is asked now and then during long work: one
# system call without a wait. Who was read last for longer than QUICK_NS asks for much, and is not in it: work for one
# of them does not end because of another. Nor is a socket that stays unread for STUCK_NS, since nobody reads it.

from libc.stdint cimport int64_t

cdef enum:
    QUICK_NS = 50000        # what a read may cost, commands included, to count as little

cdef struct Input:          # of one descriptor
    bint watched            # in the set
    int64_t since_ns        # monotonic: unread since then, as far as is known; 0: not seen unread
    int64_t seen_ns         # when it was last seen so


cdef class Unread:
    cdef int fd             # of the set; -1: there is none, and nobody is ever found
    cdef Input *inputs      # owned; by descriptor
    cdef int room
    cdef int64_t quick_ns   # that reads of those clients have taken since somebody has set it to 0
    cdef bint noticed       # one of them was found waiting, or
    # was read, and its answer leaves at the end of the iteration: who sends it calls answered() before.
    cdef bint owes

    cpdef void add(self, int fd) noexcept           # a client's socket; closing it is enough to remove it
    # It was read, and what came was acted on for so long. answers: it waits for an answer, if it asked for little.
    cdef void was_read(self, int fd, int64_t took_ns, bint answers) noexcept
    cdef bint any(self, int64_t now_ns) noexcept            # one waits, to be read or for its answer
    cpdef void answered(self) noexcept
    cdef void _watch(self, int fd, bint watched) noexcept
