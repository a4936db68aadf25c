"""Sets of offsets (nsqc.store.log.positions), driven from Python."""

from libc.stdint cimport int64_t

from nsqc.store.log.positions cimport (OffsetSet, Range, RangeWalk, offsets_add, offsets_free, offsets_from,
                                       offsets_have, offsets_next, offsets_put, offsets_remove)


cdef class Offsets:
    """A set of offsets."""

    cdef OffsetSet set

    def __dealloc__(self):
        offsets_free(&self.set)

    def __contains__(self, int64_t offset):
        return offsets_have(&self.set, offset)

    def add(self, int64_t first, int64_t end):
        """Adds a range."""
        if offsets_add(&self.set, first, end) < 0:
            raise MemoryError

    def put(self, int64_t first, int64_t end, int attempts, int64_t due_ns):
        """The same for waiting messages."""
        cdef Range added
        added.first, added.end, added.attempts, added.due_ns = first, end, attempts, due_ns
        if offsets_put(&self.set, &added) < 0:
            raise MemoryError

    def remove(self, int64_t first, int64_t end):
        """Removes a range."""
        if offsets_remove(&self.set, first, end) < 0:
            raise MemoryError

    def ranges(self, int64_t first=-1) -> list:
        """(first, end, attempts, due) of each range; with an offset, only ranges that reach past it."""
        cdef RangeWalk walk = offsets_from(&self.set, first)
        cdef Range *found = offsets_next(&self.set, &walk)
        listed = []
        while found is not NULL:
            listed.append((found.first, found.end, found.attempts, found.due_ns))
            found = offsets_next(&self.set, &walk)
        return listed

    def clear(self):
        """Removes all."""
        offsets_free(&self.set)
