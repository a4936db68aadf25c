"""The memory queue (nsqc.store.message), driven from Python."""

from libc.stdint cimport uint32_t

from nsqc.store.message cimport (Entry, Fifo, FifoWalk, fifo_free, fifo_look, fifo_pop, fifo_push, message_new,
                                 message_unref)


cdef class MemoryQueue:
    """Bodies in, bodies out."""

    cdef Fifo fifo

    def __dealloc__(self):
        fifo_free(&self.fifo)

    def __len__(self):
        return self.fifo.count

    def push(self, bytes body not None, attempts: int = 0, defer_ms: int = 0):
        """Adds a message."""
        if fifo_push(&self.fifo, message_new(b"0" * 16, 0, body, <uint32_t> len(body)), attempts, defer_ms) < 0:
            raise MemoryError

    def pop(self):
        """The oldest message's (body, attempts, defer_ms); None if empty."""
        cdef Entry entry
        if not fifo_pop(&self.fifo, &entry):
            return None
        body = entry.message.body[:entry.message.size]
        message_unref(entry.message)
        return body, entry.attempts, entry.defer_ms

    def clear(self):
        """Drops everything."""
        fifo_free(&self.fifo)

    def place(self):
        """A cursor at the beginning."""
        return Place(self)


cdef class Place:
    """A read-only cursor into a queue."""

    cdef MemoryQueue queue
    cdef FifoWalk walk

    def __init__(self, MemoryQueue queue not None):
        self.queue = queue

    def look(self):
        """Returns the body there and advances; None at the end. Counts the calls that were needed."""
        cdef Entry entry
        cdef int found, calls = 0
        while True:
            found = fifo_look(&self.queue.fifo, &self.walk, &entry)
            calls += 1
            if found >= 0:
                break
        if not found:
            return None
        self.walk.at += 1
        return entry.message.body[:entry.message.size], calls

    def move(self, int at):
        """Moves to another number."""
        self.walk.at = at
