# The sparse index of a segment: where a walk to an offset or a time begins. In memory for the segment that is written
# to; after the frames of a sealed one. Nothing relies on it: a frame that it points at proves itself, and without it a
# walk begins at the first frame.

from libc.stdint cimport int64_t, uint64_t

from nsqc.store.log.frame cimport Frame

cdef enum:
    INDEX_STEP = 65536          # bytes of frames for an entry


cdef struct IndexEntry:
    int64_t first               # offset of a frame's first record
    int64_t position            # of the frame
    int64_t time_ns             # the latest of this frame and all frames before it

cdef struct Index:
    IndexEntry *items           # owned
    int64_t count, room
    int64_t next_at             # a frame at or after this position has the next entry
    int64_t time_ns             # the latest so far

cdef void index_note(Index *index, const Frame *frame, int64_t position) noexcept nogil     # frames in order
cdef void index_free(Index *index) noexcept nogil
# The last entry at or before an offset, or the last whose time is below one; NULL: there is none.
cdef const IndexEntry *index_find(const Index *index, int64_t offset) noexcept nogil
cdef const IndexEntry *index_before(const Index *index, int64_t time_ns) noexcept nogil
# Writes the index to the end of a file, after the frames, which end at a position, and reads it there; 0 or errno.
# ENODATA: there is none, or not of this segment.
cdef int index_write(const Index *index, int fd, int64_t position, uint64_t salt) noexcept nogil
cdef int index_read(Index *index, int fd, uint64_t salt) noexcept nogil
# Where a walk to an offset, or to a publish time (offset below 0), begins in a sealed segment.
cdef int64_t index_position(int fd, uint64_t salt, int64_t offset, int64_t time_ns) noexcept nogil
