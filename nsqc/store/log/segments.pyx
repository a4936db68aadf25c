"""The table of segments. See the .pxd."""

from libc.stdint cimport int64_t
from libc.stdlib cimport free
from libc.string cimport memmove, memset

from nsqc.store.clock cimport STEP_NS
from nsqc.store.log.array cimport array_below, array_room
from nsqc.store.log.segmenthead cimport FRAMES_AT

cdef enum:
    FIRST_ROOM = 4


cdef int segments_reserve(Segments *segments, int64_t count) noexcept nogil:
    return array_room(<void **> &segments.items, &segments.room, segments.count + count, sizeof(Segment), FIRST_ROOM)


cdef void segments_add(Segments *segments, const Segment *segment) noexcept nogil:
    cdef Segment *last = segments_last(segments)
    segments.items[segments.count] = segment[0]
    if last is not NULL:
        segments.items[segments.count].lost = max(
            segment.before - (last.before + last.end - last.first), <int64_t> 0)
    segments.missing += segments.items[segments.count].lost
    segments.count += 1
    segments.bytes += segment.position - FRAMES_AT


cdef void segments_drop(Segments *segments, int64_t count) noexcept nogil:
    cdef int64_t index
    for index in range(count):
        segments.bytes -= segments.items[index].position - FRAMES_AT
        segments.missing -= segments.items[index].lost
    if count < segments.count:
        segments.missing -= segments.items[count].lost
        segments.items[count].lost = 0
    segments.count -= count
    segments.dropped += count
    memmove(segments.items, segments.items + count, <size_t> segments.count * sizeof(Segment))


cdef int64_t segments_surplus(Segments *segments, int64_t needed, int64_t retain_ns, int64_t retain_bytes, bint drops,
                              int64_t now_ns, int64_t since_ns) noexcept nogil:
    cdef int64_t gone = 0, left = segments.bytes, size, sane = 0, time_ns
    cdef Segment *segment
    cdef bint old, surplus
    while gone < segments.count - 1:
        segment = &segments.items[gone]
        # A clock that was fast says nothing about the age: the segment is at least as old as a later one.
        sane = max(sane, gone)
        while sane < segments.count and segments.items[sane].time_ns - now_ns >= STEP_NS:
            sane += 1
        time_ns = segments.items[sane].time_ns if sane < segments.count else since_ns
        old = now_ns - time_ns > retain_ns
        size = left - (segment.position - FRAMES_AT)
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
    if segments.count and segments.items[segments.count - 1].first <= offset:
        return segments.count - 1
    return array_below(&segments.items[0].first, sizeof(Segment), segments.count, offset + 1) - 1


cdef int64_t segments_at_time(Segments *segments, int64_t time_ns) noexcept nogil:
    return array_below(&segments.items[0].time_ns, sizeof(Segment), segments.count, time_ns)


cdef int64_t segments_rank(Segments *segments, int64_t offset) noexcept nogil:
    cdef int64_t index = segments_find(segments, offset)
    cdef Segment *segment
    if index < 0:
        return segments.items[0].before if segments.count else 0
    segment = &segments.items[index]
    return segment.before + min(offset, segment.end) - segment.first
