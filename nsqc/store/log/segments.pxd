# The segments of a log in memory, oldest first.

from libc.stdint cimport int64_t, uint64_t


cdef struct Segment:
    int64_t first           # offset of its first record
    int64_t end             # offset after its last
    int64_t position        # where its frames end
    int64_t before          # records in all earlier segments, removed ones included
    int64_t lost            # of these, records of segments missing right before it; 0 once those were removed
    int64_t sequence
    uint64_t salt
    int64_t due_ns          # the latest due time of its delayed records; 0: it has none
    int64_t time_ns         # the latest publish time in it and all segments before it


cdef struct Segments:
    Segment *items          # owned; NULL while there are none
    int64_t count, room
    int64_t bytes           # of all frames
    int64_t missing         # records of segments that are gone but were not removed
    int64_t dropped         # removed segments; also the number of the first existing one, which never changes

cdef int segments_reserve(Segments *segments, int64_t count) noexcept nogil     # room for this many more; -1: no memory
# Appends a segment, with its `before`; the first one with its `lost`. There must be room.
cdef void segments_add(Segments *segments, const Segment *segment) noexcept nogil
cdef void segments_drop(Segments *segments, int64_t count) noexcept nogil       # the oldest ones
# Number of oldest segments that can go; see TopicLog.retain(). The last one stays: it is appended to. now_ns, since_ns:
# Clock.wall and Clock.since.
cdef int64_t segments_surplus(Segments *segments, int64_t needed, int64_t retain_ns, int64_t retain_bytes, bint drops,
                              int64_t now_ns, int64_t since_ns) noexcept nogil
cdef void segments_free(Segments *segments) noexcept nogil
# The last segment that begins at or before an offset; -1: none does.
cdef int64_t segments_find(Segments *segments, int64_t offset) noexcept nogil
# The first segment whose publish times reach time_ns, or the count.
cdef int64_t segments_at_time(Segments *segments, int64_t time_ns) noexcept nogil
# Number of records before an offset, as far as segments know: subtract two ranks to count the records between.
cdef int64_t segments_rank(Segments *segments, int64_t offset) noexcept nogil

cdef inline Segment *segments_last(Segments *segments) noexcept nogil:      # NULL: there is none
    return &segments.items[segments.count - 1] if segments.count else NULL
