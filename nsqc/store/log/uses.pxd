# Which segments a cursor still needs: counts of delivered, unfinished messages.

from libc.stdint cimport int64_t
from nsqc.store.log.segments cimport Segments


cdef struct Use:            # of a segment
    int64_t first           # offset of its first record
    int64_t limit           # offset after its last, as known then
    int64_t count           # unfinished messages before next that lie in it

cdef struct Uses:           # in order: items[first : first + count]
    Use *items              # owned
    int64_t first, count, room


# One more message of a segment is unfinished; never of one before the last. False: no memory.
cdef inline bint use_add(Uses *uses, Segments *segments, int64_t offset) noexcept:
    cdef Use *last
    if uses.count:
        last = &uses.items[uses.first + uses.count - 1]
        if last.first <= offset < last.limit:
            last.count += 1
            return True
    return use_begin(uses, segments, offset)

# A message is finished.
cdef inline void use_end(Uses *uses, int64_t offset) noexcept:
    cdef Use *last
    if uses.count:
        last = &uses.items[uses.first + uses.count - 1]
        if last.first <= offset:
            last.count -= 1
        else:
            use_end_before(uses, offset)

cdef bint use_begin(Uses *uses, Segments *segments, int64_t offset) noexcept    # use_add() if the last one lacks it
cdef void use_end_before(Uses *uses, int64_t offset) noexcept                   # use_end(), not of the last
cdef void drop_unused(Uses *uses) noexcept                                      # the oldest ones
# Drops the uses of segments that end before an offset, because they are removed; True: one was needed.
cdef bint drop_before(Uses *uses, int64_t offset) noexcept
