"""The heap of deferred messages (nsqc.store.log.positions), driven from Python."""

from libc.stdint cimport int64_t

from nsqc.store.log.positions cimport (Deferred, DeferredHeap, deferred_first, deferred_free, deferred_pop,
                                       deferred_push, deferred_take)


cdef class Heap:
    """Messages by due time."""

    cdef DeferredHeap heap

    def __dealloc__(self):
        deferred_free(&self.heap)

    def __len__(self):
        return self.heap.count

    def push(self, int64_t due_ns, int64_t offset):
        """Adds one."""
        cdef Deferred item
        item.due_ns = due_ns
        item.offset = offset
        item.attempts = 0
        if deferred_push(&self.heap, &item) < 0:
            raise MemoryError

    def first(self):
        """(due_ns, offset) of the first; None: there is none."""
        cdef Deferred *item = deferred_first(&self.heap)
        return None if item is NULL else (item.due_ns, item.offset)

    def pop(self):
        """Removes the first."""
        deferred_pop(&self.heap)

    def take(self, int64_t at):
        """Removes the one at an index."""
        deferred_take(&self.heap, at)

    def items(self) -> list:
        """(due_ns, offset) of all, by index."""
        return [(self.heap.items[at].due_ns, self.heap.items[at].offset) for at in range(self.heap.count)]
