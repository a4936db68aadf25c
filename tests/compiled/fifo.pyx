"""The memory queue (nsqc.store.fifo), driven from Python."""

from libc.stdint cimport uint32_t

from nsqc.store.fifo cimport Entry, Fifo, fifo_free, fifo_pop, fifo_push
from nsqc.store.message cimport message_new, message_unref


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
