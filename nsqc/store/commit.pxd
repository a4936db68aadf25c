# The writes of a topic and its channels, together: as commits, one after another.
#
# A store with unwritten data calls write_later(). The commit that collects it starts in the next loop iteration, or, if
# another one is in progress, after that one. Nothing else schedules a write.

from libc.stdint cimport int64_t
from nsqc.store.seams cimport LoopWork, StoreOwner
from nsqc.store.sharing cimport Sharing
from nsqc.store.slices cimport Slicer
from nsqc.store.space cimport DiskSpace

cdef enum:
    MOST_UNWRITTEN = 8388608    # bytes that a topic and its channels may buffer during a commit


cdef class CommitSchedule:
    # Shared by all commits of one daemon, and the journals of logs.
    cdef object loop            # None: run() is called manually
    cdef readonly Slicer slicer
    cdef DiskSpace space        # of the disk being written to
    cdef list due               # LoopWork to run in the next loop iteration
    cdef bint scheduled
    cdef bint awaited           # a caller runs run() at the end of this loop iteration

    cdef void add(self, LoopWork work) noexcept
    cpdef run(self)


cdef class Commit(LoopWork):
    # The commits of one topic. serial is that of the commit being collected.
    cdef CommitSchedule schedule
    cdef StoreOwner owner       # the topic; None once deleted
    cdef readonly int64_t serial
    cdef list dirty             # stores with records in the buffer being filled
    cdef list waiters           # LoopWork, of the commit being collected
    cdef list under_way         # waiters of the commit in progress
    cdef int running            # writes in progress
    cdef int64_t unwritten      # bytes in the buffers being filled
    cdef list blocked           # LoopWork to run after the commit in progress
    cdef int failed             # errno of the first failed write
    cdef bint syncs             # a write of the commit in progress syncs: the next one should serve many publishers
    cdef Sharing sharing        # of syncs

    @staticmethod
    cdef Commit new(CommitSchedule schedule, StoreOwner owner)
    cdef inline bint is_clean(self) noexcept:
        return not self.is_due() and self.running == 0
    cdef inline bint is_due(self) noexcept:
        return len(self.dirty) > 0
    # Whether more is buffered than one write may take: work that fills buffers stops, and resumes after the commit in
    # progress.
    cdef inline bint is_full(self) noexcept:
        return self.unwritten >= MOST_UNWRITTEN and self.running > 0
    # The commit being collected will run() the store, which calls one_ended() then or later. A failure (out of memory)
    # is retried with the next record.
    cdef inline void write_later(self, LoopWork store) noexcept:
        if not store.queued:
            self.dirty.append(store)
            store.queued = True
        if self.running == 0 and not (self.queued and self.schedule.scheduled):
            self.schedule.add(self)
    cdef void block(self, LoopWork work) noexcept
    cdef void wait(self, LoopWork waiter) noexcept          # for the one being collected
    cdef void wait_running(self, LoopWork waiter) noexcept  # for the one in progress, which exists
    cdef void one_ended(self, int error) noexcept
    cdef bint _waits(self) noexcept
    cdef void _end(self) noexcept


cdef class CallWaiter(LoopWork):
    cdef object call
