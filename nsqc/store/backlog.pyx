"""Memory first, then disk: what waits in a topic or channel, and when it counts as written."""

cimport cython
from libc.errno cimport ENOMEM
from libc.stdint cimport int64_t, uint16_t, uint32_t

from nsqc.store.fifo cimport fifo_free, fifo_pop, fifo_push
from nsqc.store.message cimport message_unref


@cython.final
cdef class CommitSet:
    """The backlogs with unwritten records; one for a daemon, so that a turn writes each file once."""

    def __init__(self):
        self.dirty = []
        self.serial = 1

    cdef inline bint is_clean(self) noexcept:
        return len(self.dirty) == 0

    cdef int commit(self) except -1:
        cdef Backlog backlog
        cdef int failed = 0
        cdef list dirty
        if not self.dirty:
            return 0
        dirty = self.dirty
        self.dirty = []
        for backlog in dirty:
            backlog.listed = False
            if backlog.commit():
                failed += 1
        if failed == 0 and self.watch is not None and self.watch.bad:
            self.watch.written()
        if self.after is not None:
            self.after(failed)
        self.serial += 1
        return failed


@cython.final
cdef class Backlog:
    """The queue of one topic or channel."""

    def __init__(self):
        raise TypeError("Backlog objects are made by Backlog.new()")

    @staticmethod
    cdef Backlog new(DiskQueue disk, int64_t max_memory, bint keeps, Clock clock, CommitSet commits):
        cdef Backlog self = Backlog.__new__(Backlog)
        self.disk = disk
        self.max_memory = max_memory
        self.keeps = keeps
        self.clock = clock
        self.commits = commits
        self.delays = {}
        self.delays_are_times = keeps
        if disk is not None:
            disk.tracks = keeps
        return self

    def __dealloc__(self):
        fifo_free(&self.memory)

    cdef int64_t depth(self) noexcept:
        return self.memory.count + (self.disk.depth if self.disk is not None else 0)

    cdef int64_t disk_depth(self) noexcept:
        return self.disk.depth if self.disk is not None else 0

    cdef int64_t delayed_on_disk(self) noexcept:
        # Another daemon may have consumed some of them in between, so the queue's own count bounds it.
        return min(<int64_t> len(self.delays), self.disk_depth()) if self.delays else 0

    cdef int put(self, Message *message, uint32_t attempts, uint32_t defer_ms, bint forced) noexcept:
        cdef bint room = self.memory.count < self.max_memory
        if self.disk is None:
            if not room and not forced:
                message_unref(message)
                return PUT_DROPPED
        # A delay is kept in memory where it can, even past what waits on disk: on disk it needs an entry of its own.
        elif not room or (self.disk.depth > 0 and defer_ms == 0):
            return self._put_disk(message, attempts, defer_ms)
        if fifo_push(&self.memory, message, attempts, defer_ms) < 0:
            return PUT_NO_MEMORY
        return PUT_MEMORY

    cdef int _put_disk(self, Message *message, uint32_t attempts, uint32_t defer_ms) noexcept:
        try:
            self.disk.append(message, <uint16_t> attempts)
            if defer_ms:
                self.delays[message.id[:16]] = defer_ms
        except MemoryError:
            return PUT_NO_MEMORY
        message_unref(message)
        self.mark_dirty()
        return PUT_DISK

    cdef void mark_dirty(self) noexcept:
        if not self.listed:
            self.listed = True
            self.commits.dirty.append(self)

    cdef bint pop(self, Entry *entry) noexcept:
        cdef uint16_t attempts
        self.taken = 0
        if fifo_pop(&self.memory, entry):
            return True
        if self.disk is None or self.disk.depth == 0:
            return False
        entry.message = self.disk.pop(&attempts)
        if entry.message is NULL:
            if self.disk.read_error:
                self.owner.on_read_failed()
            return False
        entry.attempts = attempts
        entry.defer_ms = 0
        self.taken = self.disk.serial
        if self.delays:
            self._apply_delay(entry)
        return True

    cdef void done(self, int64_t taken) noexcept:
        if taken:
            self.disk.done(taken)

    cdef void _apply_delay(self, Entry *entry) noexcept:
        cdef object kept = self.delays.pop(entry.message.id[:16], None)
        cdef int64_t left_ms
        if kept is None:
            return
        left_ms = kept
        if self.delays_are_times:
            left_ms = (left_ms - self.clock.wall) // 1000000
        if left_ms > 0:
            entry.defer_ms = <uint32_t> left_ms
        if self.disk.depth == 0:
            self.delays.clear()

    cdef int commit(self) except -1:
        cdef int error = self.disk.flush()
        if error:
            self.error = error
            if not self.keeps:
                self.disk.discard()
            self.owner.on_write_failed(error)
        elif self.error:
            self.error = 0
            self.owner.on_write_healed()
        return error

    def empty(self):
        """Drops everything that waits."""
        fifo_free(&self.memory)
        self.delays.clear()
        if self.disk is not None:
            self.disk.empty()

    def delete(self):
        """Drops everything, files included, and lets go of its owner."""
        self.empty()
        self.error = 0
        self.owner = None
        if self.disk is not None:
            self.disk.delete()

    def spill(self) -> int:
        """Puts what waits in memory behind what is on disk, for a stop; returns how many, raises OSError.

        Memory is older than disk, yet goes behind it, as with the original: the disk queue can only grow at its end.
        """
        cdef Entry entry
        cdef int64_t moved = 0
        if self.disk is None:
            return 0
        while fifo_pop(&self.memory, &entry):
            if self._put_disk(entry.message, entry.attempts, entry.defer_ms) == PUT_NO_MEMORY:
                message_unref(entry.message)
                raise OSError(ENOMEM, "no memory to write the queue out")
            moved += 1
        return moved
