"""Which segments a cursor needs. See the .pxd."""

from libc.stdint cimport int64_t
from libc.stdlib cimport realloc
from libc.string cimport memmove

from nsqc.store.log.segments cimport Segment, segments_find

cdef enum:
    FIRST_USES = 4


cdef bint use_begin(Uses *uses, Segments *segments, int64_t offset) noexcept:
    cdef Use *last = &uses.items[uses.first + uses.count - 1] if uses.count else NULL
    cdef Use *grown
    cdef Segment *segment = &segments.items[segments_find(segments, offset)]
    cdef int64_t room
    if last is not NULL and last.first == segment.first:
        last.limit = segment.end
        last.count += 1
        return True
    drop_unused(uses)
    if uses.first + uses.count == uses.room:
        if uses.first:
            memmove(uses.items, uses.items + uses.first, <size_t> uses.count * sizeof(Use))
            uses.first = 0
        else:
            room = max(2 * uses.room, <int64_t> FIRST_USES)
            grown = <Use *> realloc(uses.items, <size_t> room * sizeof(Use))
            if grown is NULL:
                return False
            uses.items = grown
            uses.room = room
    last = &uses.items[uses.first + uses.count]
    last.first = segment.first
    last.limit = segment.end
    last.count = 1
    uses.count += 1
    return True


cdef void use_end_before(Uses *uses, int64_t offset) noexcept:
    cdef int64_t low = uses.first, high = uses.first + uses.count, middle
    while low < high:
        middle = (low + high) // 2
        if uses.items[middle].first <= offset:
            low = middle + 1
        else:
            high = middle
    if low > uses.first:
        uses.items[low - 1].count -= 1


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
