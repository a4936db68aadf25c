"""When data is written, and who waits for that. See the .pxd."""

cimport cython

from nsqc.store.sharing cimport sharing_began, sharing_ended, sharing_waits

cdef enum:
    MOST_SHARED = 1048576       # buffered bytes at which a commit stops waiting for more publishers: see Sharing


@cython.final
cdef class CommitSchedule:
    """The commits and journal writes that start in the next loop iteration."""

    def __init__(self, loop=None, Slicer slicer=None, DiskSpace space=None):
        self.loop = loop
        self.slicer = Slicer() if slicer is None else slicer
        self.space = DiskSpace() if space is None else space
        self.due = []

    cdef void add(self, LoopWork work) noexcept:
        # A failure here (out of memory) is retried with the next record.
        if not work.queued:
            self.due.append(work)
            work.queued = True
        if not self.scheduled and self.loop is not None:
            if not self.awaited:
                self.loop.call_soon(self.run)
            self.scheduled = True

    cpdef run(self):
        """Starts writing everything dirty."""
        cdef LoopWork work
        cdef list due
        self.scheduled = False
        due = self.due
        self.due = []
        for work in due:
            work.queued = False
            work.run()

    def finish(self):
        """Runs until nothing is due; for tests and for pools without threads."""
        while self.due:
            self.run()


@cython.final
cdef class Commit(LoopWork):
    """The writes of one topic and its channels."""

    @staticmethod
    cdef Commit new(CommitSchedule schedule, StoreOwner owner):
        cdef Commit self = Commit.__new__(Commit)
        self.schedule = schedule
        self.owner = owner
        self.serial = 1
        self.dirty = []
        self.waiters = []
        self.under_way = []
        self.blocked = []
        return self

    cdef void block(self, LoopWork work) noexcept:
        self.blocked.append(work)

    cdef void wait(self, LoopWork waiter) noexcept:
        self.waiters.append(waiter)

    cdef void wait_running(self, LoopWork waiter) noexcept:
        self.under_way.append(waiter)

    cdef bint run(self) noexcept:
        cdef LoopWork store
        cdef list dirty
        if self.running or not self.is_due():
            return False
        if self._waits():
            self.schedule.add(self)
            return False
        sharing_began(&self.sharing)
        dirty = self.dirty
        self.dirty = []
        self.under_way = self.waiters
        self.waiters = []
        self.serial += 1
        self.failed = 0
        self.syncs = False
        self.schedule.space.wrote(self.unwritten)
        self.unwritten = 0
        if self.owner is not None:
            self.owner.on_commit_began()
        # One more, so that the commit cannot end before all writes have started.
        self.running = 1 + <int> len(dirty)
        for store in dirty:
            store.queued = False
            store.run()
        self.one_ended(0)
        return False

    cdef bint _waits(self) noexcept:
        return (self.sharing.enough > 0 and self.unwritten < MOST_SHARED
                and sharing_waits(&self.sharing, len(self.waiters)))

    cdef void one_ended(self, int error) noexcept:
        if error and self.failed == 0:
            self.failed = error
        self.running -= 1
        if self.running == 0:
            self._end()

    cdef void _end(self) noexcept:
        cdef LoopWork work
        cdef list under_way = self.under_way, blocked
        cdef int failed = self.failed
        self.under_way = []
        if self.owner is not None:
            self.owner.commit_ended(self, failed)
        for work in under_way:
            work.commit_ended(self, failed)
        if self.blocked:
            blocked, self.blocked = self.blocked, []
            for work in blocked:
                self.schedule.slicer.add(work)
        if self.is_due():
            if self.syncs:
                sharing_ended(&self.sharing, len(under_way), len(self.waiters))
            self.schedule.add(self)


@cython.final
cdef class CallWaiter(LoopWork):
    """Calls a Python function with the errno of a commit, or 0."""

    def __init__(self, call):
        self.call = call

    cdef void commit_ended(self, LoopWork commit, int error) noexcept:
        self.call(error)
