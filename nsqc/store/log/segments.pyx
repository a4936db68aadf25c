"""The table of segments. See the .pxd."""

from libc.stdint cimport int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove, memset

cdef enum:
    FIRST_ROOM = 4

# As in gaps.py: numbering leaves out more than that, and a lost segment less.
cdef int64_t MOST_MISSING = 1 << 31


cdef int segments_reserve(Segments *segments, int64_t count) noexcept nogil:
    cdef Segment *grown
    cdef int64_t room = segments.count + count
    if room <= segments.room:
        return 0
    room = max(room, 2 * segments.room, <int64_t> FIRST_ROOM)
    grown = <Segment *> realloc(segments.items, <size_t> room * sizeof(Segment))
    if grown is NULL:
        return -1
    segments.items = grown
    segments.room = room
    return 0


cdef int segments_add(Segments *segments, Segment *segment) noexcept nogil:
    cdef Segment *last
    if segments_reserve(segments, 1) < 0:
        return -1
    segment.before = 0
    if segments.count:
        last = &segments.items[segments.count - 1]
        segment.before = last.before + last.end - last.first
        segments.missing += missing_between(last, segment)
    segments.items[segments.count] = segment[0]
    segments.count += 1
    segments.bytes += segment.bytes
    return 0


cdef int64_t missing_between(Segment *segment, Segment *following) noexcept nogil:
    cdef int64_t gap = following.first - segment.end
    return gap if 0 < gap < MOST_MISSING else 0


cdef void segments_drop(Segments *segments, int64_t count) noexcept nogil:
    cdef int64_t index
    for index in range(count):
        segments.bytes -= segments.items[index].bytes
        if index + 1 < segments.count:
            segments.missing -= missing_between(&segments.items[index], &segments.items[index + 1])
    segments.count -= count
    segments.dropped += count
    memmove(segments.items, segments.items + count, <size_t> segments.count * sizeof(Segment))


cdef int64_t segments_surplus(Segments *segments, int64_t needed, int64_t retain_ns, int64_t retain_bytes, bint drops,
                              int64_t now_ns) noexcept nogil:
    cdef int64_t gone = 0, left = segments.bytes, size
    cdef Segment *segment
    cdef bint old, surplus
    while gone < segments.count - 1:
        segment = &segments.items[gone]
        old = now_ns - segment.last_ns > retain_ns
        size = left - segment.bytes
        surplus = size >= retain_bytes
        if segment.end <= needed:
            if not (old and surplus):
                break
        elif not drops or not ((retain_ns > 0 and old) or (retain_bytes > 0 and left > retain_bytes)):
            break
        left = size
        gone += 1
    return gone


cdef void segments_free(Segments *segments) noexcept nogil:
    free(segments.items)
    memset(segments, 0, sizeof(segments[0]))


cdef int64_t segments_find(Segments *segments, int64_t offset) noexcept nogil:
    cdef int64_t low = 0, high = segments.count, middle
    if high and segments.items[high - 1].first <= offset:
        return high - 1
    while low < high:
        middle = (low + high) // 2
        if segments.items[middle].first <= offset:
            low = middle + 1
        else:
            high = middle
    return low - 1


cdef int64_t segments_rank(Segments *segments, int64_t offset) noexcept nogil:
    cdef int64_t index = segments_find(segments, offset)
    cdef Segment *segment
    if index < 0:
        return segments.items[0].before if segments.count else 0
    segment = &segments.items[index]
    return segment.before + min(offset, segment.end) - segment.first


cdef list segments_numbered(Segments *segments, int64_t number, int64_t most):
    cdef int64_t index, begin = number - segments.dropped
    if begin < 0:
        return []
    return [(segments.items[index].first, segments.items[index].end, segments.items[index].bytes)
            for index in range(begin, min(begin + most, segments.count))]


cdef tuple segments_at(Segments *segments, int64_t offset):
    cdef int64_t index
    cdef Segment *segment
    for index in range(max(segments_find(segments, offset), 0), segments.count):
        segment = &segments.items[index]
        if segment.first < segment.end and offset < segment.end:
            return segment.first, segment.end, segment.bytes
    return None
