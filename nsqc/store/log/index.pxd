# The sparse index of a segment: where a walk to an offset or a time begins. In memory for the segment being written;
# after the frames of a sealed one. It is only a hint: a walk begins at the first frame if the index does not point to
# another one.

from libc.stdint cimport int64_t, uint64_t

from nsqc.store.log.frame cimport Frame

cdef enum:
    INDEX_STEP = 65536          # bytes of frames per entry


cdef struct IndexEntry:
    int64_t first               # offset of a frame's first record
    int64_t position            # of the frame
    int64_t time_ns             # the latest of this frame and all earlier ones

cdef struct Index:
    IndexEntry *items           # owned
    int64_t count, room
    int64_t next_at             # the first frame at or after this position gets the next entry
    int64_t time_ns             # the latest so far

cdef void index_note(Index *index, const Frame *frame, int64_t position) noexcept nogil     # frames in order
cdef void index_free(Index *index) noexcept nogil
# The last entry at or before an offset, or the last with a time below one; NULL: none.
cdef const IndexEntry *index_find(const Index *index, int64_t offset) noexcept nogil
cdef const IndexEntry *index_before(const Index *index, int64_t time_ns) noexcept nogil
# Writes the index to the end of a file, after the frames, which end at a position, or reads it there; 0 or errno.
# ENODATA: no index, or that of another segment.
cdef int index_write(const Index *index, int fd, int64_t position, uint64_t salt) noexcept nogil
cdef int index_read(Index *index, int fd, uint64_t salt) noexcept nogil
# Where in a sealed segment a walk to an offset, or a publish time (offset below 0), begins: at a frame.
cdef int64_t index_position(int fd, uint64_t salt, int64_t offset, int64_t time_ns) noexcept nogil
