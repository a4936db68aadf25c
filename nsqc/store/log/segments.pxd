# The segments of a log, oldest first, in memory: a few words for each, whatever they hold.

from libc.stdint cimport int64_t, uint32_t


cdef struct Segment:
    int64_t first           # offset of its first record
    int64_t end             # offset behind its last
    int64_t bytes           # of its records
    int64_t before          # records in the segments before it that were known when it began
    int64_t due_bytes       # of its due times; 0: there is no such file
    int64_t base_ns         # of the times in its index; 0: its index has not been read
    int64_t last_ns         # wall clock: when its last record was written, or later
    uint32_t time           # of its last index entry
    bint told               # that its index is missing


cdef struct Segments:
    Segment *items          # owned; NULL while there are none
    int64_t count, room
    int64_t bytes           # of all records
    int64_t missing         # messages between segments; see gaps.py
    int64_t dropped         # segments that are gone: the first one there is has this number, whatever goes later

cdef int segments_reserve(Segments *segments, int64_t count) noexcept nogil     # room for so many more; -1: no memory
cdef int segments_add(Segments *segments, Segment *segment) noexcept nogil      # at the end; -1: no memory
cdef void segments_drop(Segments *segments, int64_t count) noexcept nogil       # the oldest ones
# How many of the oldest nobody needs any more; see TopicLog.retain(). The last one stays: it is appended to.
cdef int64_t segments_surplus(Segments *segments, int64_t needed, int64_t retain_ns, int64_t retain_bytes, bint drops,
                              int64_t now_ns) noexcept nogil
cdef void segments_free(Segments *segments) noexcept nogil
# The last segment that begins at or before an offset; -1: none does.
cdef int64_t segments_find(Segments *segments, int64_t offset) noexcept nogil
# How many records lie before an offset, as far as segments have known: the difference of two is what lies between them.
cdef int64_t segments_rank(Segments *segments, int64_t offset) noexcept nogil
# For Python: see TopicLog.numbered() and TopicLog.segment_at().
cdef list segments_numbered(Segments *segments, int64_t number, int64_t most)
cdef tuple segments_at(Segments *segments, int64_t offset)
