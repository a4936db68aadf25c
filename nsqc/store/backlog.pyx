"""Memory first, then disk: the waiting messages of a topic or channel. See the .pxd."""

cimport cython
from libc.errno cimport ENOMEM
from libc.stdint cimport int64_t, uint16_t, uint32_t

from nsqc.store.disk.queue cimport disk_bytes
from nsqc.store.disk.segment cimport HEAD_BYTES
from nsqc.store.memory cimport CHECKS, broken
from nsqc.store.message cimport Message, fifo_free, fifo_oldest, fifo_pop, fifo_push, message_unref
from nsqc.store.work cimport Trash


@cython.final
cdef class Backlog(StoreOwner):
    """The queue of one topic or channel."""

    def __init__(self):
        raise TypeError("Backlog objects are made by Backlog.new()")

    @staticmethod
    cdef Backlog new(DiskQueue disk, int64_t max_memory, bint keeps, Clock clock, Commit commit, StoreOwner owner):
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
        disk.owner = self

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
            self.commit.write_later(self)

    cdef bint run(self) noexcept:
        """Begins a write, for a commit."""
        if not self.disk.begin_write(False):
            if self.disk.buffered() > 0 and self.disk.write_error == ENOMEM:
                self._refuse()
                self.commit.one_ended(ENOMEM)
            else:
                self.commit.one_ended(0)    # nothing left to write
        return False

    cdef void _refuse(self) noexcept:
        """No memory to write the buffer. A channel retries; a topic drops the records and refuses the publishes."""
        cdef int64_t records, body_bytes = 0
        if self.keeps:
            self.mark_dirty()
            return
        records = self.disk.discard(&body_bytes)
        self.error = ENOMEM
        if self.owner is not None:
            self.owner.on_written(ENOMEM, records, body_bytes)

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

    cdef int64_t oldest_ns(self, uint32_t *attempts) noexcept:
        cdef Message *message = fifo_oldest(&self.memory, attempts)
        if message is not NULL:
            return message.timestamp_ns
        return self.disk.oldest_ns(attempts) if self.disk is not None and self.disk.depth > 0 else 0

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
        self.error = error
        if self.owner is not None:
            self.owner.on_written(error, records, body_bytes)
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
        if self.disk.out.records and self.disk.writing is NULL and self.disk.write_error == 0 and not self.queued:
            broken("records without a scheduled write")
        if self.queued and self not in self.commit.dirty:
            broken("a dirty backlog is not listed in its commit")
        if self.commit.is_due() and self.commit.running == 0 and not (
                self.commit.queued and self.commit in self.commit.schedule.due):
            broken("a commit has dirty backlogs and is not due")

    # ------------------------------------------------------------------ administration

    def retry(self):
        """Retries a failed write, unless consumers have taken all of it meanwhile."""
        if self.error == 0 or self.queued or self.disk.writing is not NULL:
            return
        if self.disk.buffered() > 0:
            self.commit.write_later(self)
        else:
            self._nothing_left()

    def _nothing_left(self):
        """The records that could not be written are gone, so no further write can fail."""
        if self.error:
            self.error = 0
            self.disk.write_error = 0
            if self.owner is not None:
                self.owner.on_written(0, 0, 0)

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
            self.disk.release_owner()
            self._write_forgotten(writing)

    def _write_forgotten(self, bint writing):
        """The disk queue does not report a write that was in progress when it was emptied."""
        if writing:
            self.commit.one_ended(0)

    def close(self):
        """On shutdown: writes and closes the disk queue. Raises OSError if messages are lost."""
        self.owner = None
        self.disk.release_owner()
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
