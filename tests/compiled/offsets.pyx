"""Sets of offsets and of waiting messages (nsqc.store.log.offsets), driven from Python."""

from libc.stdint cimport int64_t
from libc.string cimport memset

from nsqc.store.log.offsets cimport (OffsetSet, Range, Waiting, WaitingSet, Walk, offsets_add, offsets_free,
                                     offsets_from, offsets_have, offsets_next, offsets_remove, waiting_find,
                                     waiting_free, waiting_from, waiting_next, waiting_put, waiting_remove)


cdef class Offsets:
    """A set of offsets."""

    cdef OffsetSet set

    def __dealloc__(self):
        offsets_free(&self.set)

    def __len__(self):
        return self.set.offsets

    def __contains__(self, int64_t offset):
        return offsets_have(&self.set, offset)

    def add(self, int64_t first, int64_t end):
        """Adds a range."""
        if offsets_add(&self.set, first, end) < 0:
            raise MemoryError

    def remove(self, int64_t first, int64_t end):
        """Removes a range."""
        if offsets_remove(&self.set, first, end) < 0:
            raise MemoryError

    def ranges(self, int64_t first=-1) -> list:
        """(first, end) of each range; those that reach behind an offset."""
        cdef Walk walk = offsets_from(&self.set, first)
        cdef Range *found = offsets_next(&self.set, &walk)
        listed = []
        while found is not NULL:
            listed.append((found.first, found.end))
            found = offsets_next(&self.set, &walk)
        return listed

    def clear(self):
        """Removes all."""
        offsets_free(&self.set)


cdef class WaitingMessages:
    """Waiting messages by offset."""

    cdef WaitingSet set

    def __dealloc__(self):
        waiting_free(&self.set)

    def __len__(self):
        return self.set.entries.count

    def put(self, int64_t offset, unsigned short attempts, int64_t due_ns):
        """Adds or replaces one."""
        cdef Waiting entry
        memset(&entry, 0, sizeof(entry))
        entry.offset = offset
        entry.attempts = attempts
        entry.due_ns = due_ns
        if waiting_put(&self.set, &entry) < 0:
            raise MemoryError

    def get(self, int64_t offset):
        """(attempts, due) of one; None: it is not there."""
        cdef Waiting *found = waiting_find(&self.set, offset)
        return None if found is NULL else (found.attempts, found.due_ns)

    def remove(self, int64_t first, int64_t end):
        """Removes those in a range."""
        waiting_remove(&self.set, first, end)

    def entries(self, int64_t first=-1) -> list:
        """(offset, attempts, due) of each from an offset on."""
        cdef Walk walk = waiting_from(&self.set, first)
        cdef Waiting *found = waiting_next(&self.set, &walk)
        listed = []
        while found is not NULL:
            listed.append((found.offset, found.attempts, found.due_ns))
            found = waiting_next(&self.set, &walk)
        return listed
