# Replies that depend on the disk: marks in the output of one connection. Nothing after a mark is sent before its commit
# has ended.

from libc.stdint cimport int64_t
from nsqc.store.backlog cimport Commit, CommitWaiter
from nsqc.tcp.outbox cimport Outbox


cdef class Mark:
    cdef Commit commit
    cdef int64_t serial                 # of the commit
    cdef int64_t at                     # where in all output the reply begins
    cdef int kind                       # CommandKind that is answered there
    cdef bint settled                   # the commit has ended
    cdef int error                      # errno of the commit


cdef class Marks:
    cdef Outbox outbox
    cdef object queue                   # deque of Mark, in the order of the output; None before the first

    @staticmethod
    cdef Marks new(Outbox outbox)

    # The next reply, to a command of this kind, holds only once what this commit is collecting has been written.
    # commit_ended() of waiter follows.
    cdef int add(self, Commit commit, int kind, CommitWaiter waiter) except -1
    # The same for the commit in progress; there is one.
    cdef int add_running(self, Commit commit, int kind, CommitWaiter waiter) except -1
    cdef bint _mark(self, Commit commit, int64_t serial, int kind) except -1
    cdef void commit_ended(self, Commit commit, int error) noexcept
    # Lets go of what has settled. Returns the first mark whose commit has failed: the output from there on is gone, and
    # so are all marks. None: no commit has failed.
    cdef Mark settle(self)
    cdef void clear(self) noexcept

    cdef inline bint waits(self) noexcept:
        return bool(self.queue)
