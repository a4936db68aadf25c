# Replies that depend on the disk: marks in the output of one connection. Output after a mark is sent only after its
# commit has ended.

from libc.stdint cimport int64_t
from nsqc.store.commit cimport Commit
from nsqc.store.seams cimport LoopWork
from nsqc.tcp.outbox cimport Outbox


cdef class Mark:
    cdef Commit commit
    cdef int64_t serial                 # of the commit
    cdef int64_t at                     # offset of the reply in all output
    cdef int kind                       # CommandKind of the answered command
    cdef bint settled                   # the commit has ended
    cdef int error                      # errno of the commit


cdef class Marks:
    cdef Outbox outbox
    cdef object queue                   # deque of Mark, in the order of the output; None before the first

    @staticmethod
    cdef Marks new(Outbox outbox)

    # The next reply, to a command of this kind, is valid only after the collecting commit is written. commit_ended() of
    # waiter follows.
    cdef int add(self, Commit commit, int kind, LoopWork waiter) except -1
    # The same for the running commit, which must exist.
    cdef int add_running(self, Commit commit, int kind, LoopWork waiter) except -1
    cdef bint _mark(self, Commit commit, int64_t serial, int kind) except -1
    cdef void commit_ended(self, Commit commit, int error) noexcept
    # Removes settled marks. Returns the first mark whose commit failed: the output from there on is dropped, and all
    # marks. None: no commit failed.
    cdef Mark settle(self)
    cdef void clear(self) noexcept

    cdef inline bint waits(self) noexcept:
        return bool(self.queue)
