"""Replies that depend on the disk. See the .pxd."""

cimport cython

from nsqc.store.commit cimport Commit
from nsqc.store.seams cimport LoopWork
from nsqc.tcp.outbox cimport Outbox

from collections import deque


@cython.final
@cython.freelist(256)
cdef class Mark:
    """A reply, or the first of several, that depends on a commit."""


@cython.final
cdef class Marks:
    """The marks of one connection."""

    @staticmethod
    cdef Marks new(Outbox outbox):
        cdef Marks self = Marks.__new__(Marks)
        self.outbox = outbox
        return self

    cdef int add(self, Commit commit, int kind, LoopWork waiter) except -1:
        if self._mark(commit, commit.serial, kind):
            commit.wait(waiter)
        return 0

    cdef int add_running(self, Commit commit, int kind, LoopWork waiter) except -1:
        if self._mark(commit, commit.serial - 1, kind):
            commit.wait_running(waiter)
        return 0

    cdef bint _mark(self, Commit commit, int64_t serial, int kind) except -1:
        """Adds a mark; returns False if the last one is for the same commit."""
        cdef Mark mark
        if self.queue is None:
            self.queue = deque()
        if self.queue:
            mark = self.queue[len(self.queue) - 1]
            if mark.commit is commit and mark.serial == serial:
                return False
        mark = Mark.__new__(Mark)
        mark.commit = commit
        mark.serial = serial
        mark.at = self.outbox.end()
        mark.kind = kind
        if not self.queue:
            self.outbox.hold = mark.at
        self.queue.append(mark)
        return True

    cdef void commit_ended(self, Commit commit, int error) noexcept:
        cdef Mark mark
        if self.queue is None:
            return
        for mark in self.queue:
            # Marks that wait for the next commit do not have its serial yet.
            if mark.commit is commit and not mark.settled and mark.serial < commit.serial:
                mark.settled = True
                mark.error = error

    cdef Mark settle(self):
        cdef Mark mark
        while self.queue:
            mark = self.queue[0]
            if not mark.settled:
                break
            self.queue.popleft()
            if mark.error and not self.outbox.closed:
                self.queue.clear()
                self.outbox.hold = -1
                self.outbox.cut(mark.at)
                return mark
        if self.queue:
            mark = self.queue[0]
            self.outbox.hold = mark.at
        else:
            self.outbox.hold = -1
        self.outbox.unhold()
        return None

    cdef void clear(self) noexcept:
        self.queue = None
