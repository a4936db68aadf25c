"""Memory first, then disk: the waiting messages of a topic or channel, and when they count as written."""

cimport cython
from libc.errno cimport ENOMEM
from libc.stdint cimport int64_t, uint16_t, uint32_t

from nsqc.store.fifo cimport fifo_free, fifo_oldest, fifo_pop, fifo_push
from nsqc.store.message cimport Message, message_unref
from nsqc.store.rules cimport CHECKS, broken
from nsqc.store.sharing cimport sharing_began, sharing_ended, sharing_waits
from nsqc.store.disk.segment cimport HEAD_BYTES
from nsqc.store.disk.state cimport disk_bytes
from nsqc.store.slices cimport Trash


cdef class BacklogOwner(Sliced):
    """A topic or channel, as seen by its backlog."""

    cdef void on_write_failed(self, int error, int64_t records, int64_t body_bytes) noexcept:
        pass

    cdef void on_write_healed(self) noexcept:
        pass

    cdef void on_readable(self) noexcept:
        pass

    cdef void on_unreadable(self) noexcept:
        pass


cdef class CommitOwner(BacklogOwner):
    """A topic, as seen by its commits."""

    cdef void on_commit_began(self) noexcept:
        pass

    cdef void on_commit_ended(self, int error) noexcept:
        pass

    cdef void on_appended(self, int64_t records) noexcept:
        pass

    cdef void on_idle(self) noexcept:
        pass


cdef class CommitLog(JobOwner):
    """A topic's log, as seen by its commits."""

    cdef bint begin_write(self) noexcept:
        return False

    cdef int64_t unwritten_records(self) noexcept:
        return 0

    cdef bint shares_syncs(self) noexcept:
        return False


cdef class Scheduled(JobOwner):
    """Work that starts in the next loop iteration."""

    cdef void begin(self) noexcept:
        pass


cdef class WriteWatch:
    """Watches for failing writes."""

    cpdef object written(self):
        """A commit succeeded; called only while failing."""


cdef class CommitWaiter(Sliced):
    """Waits for a commit, and must not answer before it ends."""

    cdef void commit_ended(self, Commit commit, int error) noexcept:
        pass


@cython.final
cdef class CallWaiter(CommitWaiter):
    """Calls a Python function with the errno of a commit, or 0."""

    def __init__(self, call):
        self.call = call

    cdef void commit_ended(self, Commit commit, int error) noexcept:
        self.call(error)


@cython.final
cdef class CommitSchedule:
    """The commits that start in the next loop iteration."""

    def __init__(self, loop=None, Slicer slicer=None, WriteWatch watch=None, DiskSpace space=None):
        self.loop = loop
        self.slicer = Slicer() if slicer is None else slicer
        self.watch = watch
        self.space = DiskSpace() if space is None else space
        self.due = []

    cdef void add(self, Scheduled work) noexcept:
        # A failure here (out of memory) is retried with the next record.
        if not work.listed:
            self.due.append(work)
            work.listed = True
        if not self.scheduled and self.loop is not None:
            if not self.awaited:
                self.loop.call_soon(self.run)
            self.scheduled = True

    cpdef run(self):
        """Starts writing everything dirty."""
        cdef Scheduled work
        cdef list due
        self.scheduled = False
        due = self.due
        self.due = []
        for work in due:
            work.listed = False
            work.begin()

    def finish(self):
        """Runs until nothing is due; for tests and for pools without threads."""
        while self.due:
            self.run()


@cython.final
cdef class Commit:
    """The writes of one topic and its channels."""

    @staticmethod
    cdef Commit new(CommitSchedule schedule, CommitOwner owner):
        cdef Commit self = Commit.__new__(Commit)
        self.schedule = schedule
        self.owner = owner
        self.serial = 1
        self.dirty = []
        self.waiters = []
        self.under_way = []
        self.blocked = []
        return self

    cdef void block(self, Sliced work) noexcept:
        self.blocked.append(work)

    cdef void wait(self, CommitWaiter waiter) noexcept:
        self.waiters.append(waiter)

    cdef void wait_running(self, CommitWaiter waiter) noexcept:
        self.under_way.append(waiter)

    cdef void let_go(self) noexcept:
        self.owner = None
        if self.is_clean():
            self.log = None     # the log refers to this commit, too: a cycle would never be freed

    cdef void begin(self) noexcept:
        cdef Backlog backlog
        cdef list dirty
        if self.running or not self.is_due():
            return
        if self._waits():
            self.schedule.add(self)
            return
        sharing_began(&self.sharing)
        dirty = self.dirty
        self.dirty = []
        self.under_way = self.waiters
        self.waiters = []
        self.serial += 1
        self.failed = 0
        self.schedule.space.wrote(self.unwritten)
        self.unwritten = 0
        if self.owner is not None:
            self.owner.on_commit_began()
        self.running = 1        # prevents the first write to end from ending the commit before all have started
        for backlog in dirty:
            backlog.listed = False
            self.running += 1
            if not backlog.disk.begin_write(False):
                # Nothing left to write, or out of memory.
                if backlog.disk.buffered() > 0 and backlog.disk.write_error == ENOMEM:
                    self.failed = ENOMEM
                    backlog.refused()
                self.running -= 1
        if self.log is not None and self.log.unwritten_records() > 0:
            self.running += 1
            if not self.log.begin_write():
                self.failed = ENOMEM
                self.running -= 1
        self.one_ended(0)

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
        cdef CommitWaiter waiter
        cdef list under_way = self.under_way
        cdef int failed = self.failed
        self.under_way = []
        if self.owner is not None:
            self.owner.on_commit_ended(failed)
        for waiter in under_way:
            waiter.commit_ended(self, failed)
        if self.blocked:
            blocked, self.blocked = self.blocked, []
            for work in blocked:
                self.schedule.slicer.add(<Sliced> work)
        if self.owner is None:
            self.let_go()
        if self.is_due():
            if self.log is not None and self.log.shares_syncs():
                sharing_ended(&self.sharing, len(under_way), len(self.waiters))
            self.schedule.add(self)
        if failed == 0 and self.schedule.watch is not None and self.schedule.watch.failing:
            self.schedule.watch.written()


@cython.final
cdef class Backlog(QueueWatcher):
    """The queue of one topic or channel."""

    def __init__(self):
        raise TypeError("Backlog objects are made by Backlog.new()")

    @staticmethod
    cdef Backlog new(DiskQueue disk, int64_t max_memory, bint keeps, Clock clock, Commit commit, BacklogOwner owner):
        cdef Backlog self = Backlog.__new__(Backlog)
        self.max_memory = max_memory
        self.keeps = keeps
        self.clock = clock
        self.commit = commit
        self.owner = owner
        self.delays = {}
        self.delays_are_times = keeps
        if disk is not None:
            self.attach(disk)
        return self

    def __dealloc__(self):
        fifo_free(&self.memory)

    cdef void attach(self, DiskQueue disk) noexcept:
        self.disk = disk
        disk.tracks = True
        disk.keeps = self.keeps
        disk.watcher = self

    cdef int64_t depth(self) noexcept:
        return self.memory.count + (self.disk.depth if self.disk is not None else 0)

    cdef int64_t disk_depth(self) noexcept:
        return self.disk.depth if self.disk is not None else 0

    cdef int64_t delayed_on_disk(self) noexcept:
        # Another daemon may have consumed some of them in between, so the queue's own count is the upper bound.
        return min(<int64_t> len(self.delays), self.disk_depth()) if self.delays else 0

    # ------------------------------------------------------------------ put and pop

    cdef int put(self, Message *message, uint32_t attempts, uint32_t defer_ms, bint forced, Place *place) noexcept:
        if self.disk is None:
            if self.memory.count >= self.max_memory and not forced:
                message_unref(message)
                return PUT_DROPPED
        elif place is not NULL:
            return self._put_disk(message, attempts, defer_ms, place)
        # A delayed message stays in memory if there is room, even ahead of messages on disk, where it needs an entry.
        elif not self.fits(defer_ms):
            return self._put_disk(message, attempts, defer_ms, NULL)
        if fifo_push(&self.memory, message, attempts, defer_ms) < 0:
            return PUT_NO_MEMORY
        return PUT_MEMORY

    cdef int put_copy(self, Message *message, uint32_t attempts, uint32_t defer_ms) noexcept:
        if self.disk is None:
            return self.put(message, attempts, defer_ms, False, NULL)
        return self._put_disk(message, attempts, defer_ms, NULL)

    cdef int _put_disk(self, Message *message, uint32_t attempts, uint32_t defer_ms, Place *place) noexcept:
        cdef object due
        if defer_ms:
            due = defer_ms
            if self.delays_are_times:
                due = self.clock.wall + due * 1000000
            try:
                self.delays[message.id[:16]] = due
            except MemoryError:
                return PUT_NO_MEMORY
        if self.disk.append(message, <uint16_t> attempts, place) < 0:
            return PUT_NO_MEMORY
        self.commit.unwritten += message.size + HEAD_BYTES
        message_unref(message)
        self.mark_dirty()
        return PUT_DISK

    cdef void mark_dirty(self) noexcept:
        # After a failure it is retried at intervals, not in every loop iteration.
        if self.error == 0 or not self.keeps:
            if not self.listed:
                self.commit.dirty.append(self)
                self.listed = True
            self.commit.schedule.add(self.commit)

    cdef void refused(self) noexcept:
        """No memory to write the buffer. A channel retries; a topic drops the records and refuses the publishes."""
        cdef int64_t records, body_bytes = 0
        if self.keeps:
            self.mark_dirty()
            return
        records = self.disk.discard(&body_bytes)
        self.error = ENOMEM
        if self.owner is not None:
            self.owner.on_write_failed(ENOMEM, records, body_bytes)

    cdef bint pop(self, Entry *entry) noexcept:
        cdef uint16_t attempts
        self.place = NULL
        if fifo_pop(&self.memory, entry):
            return True
        if self.disk is None or self.disk.depth == 0:
            return False
        entry.message = self.disk.pop(&attempts)
        if entry.message is NULL:
            return False
        entry.attempts = attempts
        entry.defer_ms = 0
        self.place = self.disk.place
        if self.delays:
            self._apply_delay(entry)
        return True

    cdef int64_t oldest_ns(self) noexcept:
        cdef Message *message = fifo_oldest(&self.memory)
        if message is not NULL:
            return message.timestamp_ns
        return self.disk.oldest_ns() if self.disk is not None and self.disk.depth > 0 else 0

    cdef int64_t bytes(self) noexcept:
        return self.memory.bytes + (disk_bytes(self.disk) if self.disk is not None else 0)

    cdef void done(self, Place *place) noexcept:
        if place is not NULL:
            self.disk.done(place)

    cdef void _apply_delay(self, Entry *entry) noexcept:
        cdef object delay = self.delays.pop(entry.message.id[:16], None)
        cdef int64_t left_ms
        if delay is None:
            return
        left_ms = delay
        if self.delays_are_times:
            left_ms = (left_ms - self.clock.wall) // 1000000
        if left_ms > 0:
            entry.defer_ms = <uint32_t> left_ms
        if self.disk.depth == 0:
            self.delays.clear()

    # ------------------------------------------------------------------ called by the disk queue

    cdef void on_written(self, int error, int64_t records, int64_t body_bytes) noexcept:
        cdef int before = self.error
        self.error = error
        if self.owner is not None:
            if error:
                self.owner.on_write_failed(error, 0 if self.keeps else records, body_bytes)
            elif before:
                self.owner.on_write_healed()
            if self.disk.depth > 0:
                self.owner.on_readable()
        if not error and self.disk.buffered() > 0:
            self.mark_dirty()       # the rest of a failed write went first, or more arrived while it recovered
        self.commit.one_ended(error)

    cdef void on_readable(self) noexcept:
        if self.owner is not None:
            self.owner.on_readable()

    cdef void on_unreadable(self) noexcept:
        if self.owner is not None:
            self.owner.on_unreadable()

    cdef void check_rules(self) noexcept:
        # RULE: dirty backlogs are scheduled. If a buffer has records, is not being written and has not failed, its
        # commit lists the backlog, and a commit with such backlogs is in progress or due.
        if not CHECKS:
            return
        if self.disk.out.records and self.disk.writing is NULL and self.disk.write_error == 0 and not self.listed:
            broken("records without a scheduled write")
        if self.listed and self not in self.commit.dirty:
            broken("a dirty backlog is not listed in its commit")
        if self.commit.is_due() and self.commit.running == 0 and not (
                self.commit.listed and self.commit in self.commit.schedule.due):
            broken("a commit has dirty backlogs and is not due")

    # ------------------------------------------------------------------ administration

    def retry(self):
        """Retries a failed write, unless consumers have taken all of it meanwhile."""
        if self.error == 0 or self.listed or self.disk.writing is not NULL:
            return
        if self.disk.buffered() > 0:
            self.commit.dirty.append(self)
            self.listed = True
            self.commit.schedule.add(self.commit)
        else:
            self._nothing_left()

    def _nothing_left(self):
        """The records that could not be written are gone, so no write can fail any more."""
        if self.error:
            self.error = 0
            self.disk.write_error = 0
            if self.owner is not None:
                self.owner.on_write_healed()

    def empty(self):
        """Drops all waiting messages. Places held elsewhere stay with their holders, without effect."""
        cdef Trash trash = Trash.new(self.commit.schedule.slicer)
        trash.take_fifo(&self.memory)
        trash.start()
        self.delays = {}
        if self.disk is not None:
            writing = self.disk.writing is not NULL
            self.disk.empty()
            self._nothing_left()
            self._write_forgotten(writing)

    def delete(self):
        """Drops everything, files included, and forgets its owner."""
        cdef Trash trash = Trash.new(self.commit.schedule.slicer)
        trash.take_fifo(&self.memory)
        trash.start()
        self.delays = {}
        self.error = 0
        self.owner = None
        if self.disk is not None:
            writing = self.disk.writing is not NULL
            self.disk.delete()
            self.disk.let_go()
            self._write_forgotten(writing)

    def _write_forgotten(self, bint writing):
        """The disk queue does not report a write that was in progress when it was emptied."""
        if writing:
            self.commit.one_ended(0)

    def close(self):
        """On shutdown: writes and closes the disk queue. Raises OSError if messages are lost."""
        self.owner = None
        self.disk.let_go()
        self.disk.close()

    def spill(self) -> int:
        """On shutdown: appends the messages in memory to the disk queue; returns their number. Raises OSError.

        Messages in memory are older than those on disk, yet are appended after them, as in nsqd: the queue only grows
        at its end.
        """
        cdef Entry entry
        cdef int64_t moved = 0
        if self.disk is None:
            return 0
        while fifo_pop(&self.memory, &entry):
            if self._put_disk(entry.message, entry.attempts, entry.defer_ms, NULL) == PUT_NO_MEMORY:
                message_unref(entry.message)
                raise OSError(ENOMEM, "no memory to write the queue out")
            moved += 1
        return moved
