"""Which segments a cursor needs. See the .pxd."""

from libc.stdint cimport int64_t

from nsqc.store.log.array cimport array_below, queue_room
from nsqc.store.log.segments cimport Segment, segments_find

cdef enum:
    FIRST_USES = 4


cdef bint use_begin(Uses *uses, Segments *segments, int64_t offset) noexcept:
    cdef Use *last = &uses.items[uses.first + uses.count - 1] if uses.count else NULL
    cdef Segment *segment = &segments.items[segments_find(segments, offset)]
    if last is not NULL and last.first == segment.first:
        last.limit = segment.end
        last.count += 1
        return True
    drop_unused(uses)
    if queue_room(<void **> &uses.items, &uses.first, uses.count, &uses.room, sizeof(Use), FIRST_USES) < 0:
        return False
    last = &uses.items[uses.first + uses.count]
    last.first = segment.first
    last.limit = segment.end
    last.count = 1
    uses.count += 1
    return True


cdef void use_end_before(Uses *uses, int64_t offset) noexcept:
    cdef int64_t count = array_below(&uses.items[uses.first].first, sizeof(Use), uses.count, offset + 1)
    if count:
        uses.items[uses.first + count - 1].count -= 1


cdef bint drop_before(Uses *uses, int64_t offset) noexcept:
    cdef bint needed = False
    while uses.count and uses.items[uses.first].limit <= offset:
        needed |= uses.items[uses.first].count > 0
        uses.first += 1
        uses.count -= 1
    return needed


cdef void drop_unused(Uses *uses) noexcept:
    while uses.count and uses.items[uses.first].count == 0:
        uses.first += 1
        uses.count -= 1
