# Checked log frames in memory, for readers outside the daemon: Spark and the tools. See the .pyi.

from libc.stdint cimport int64_t, uint32_t, uint64_t

from nsqc.store.log.frame cimport Frame
from nsqc.store.log.read cimport ReadFrames


cdef struct FramePart:          # the records of one frame in a block
    int64_t row                 # of the first one
    int64_t time_ns
    int64_t id                  # of the first one
    int64_t at                  # where the first one lies in the data
    int64_t origin_at           # where its origin lies; 0: the frame has no origins


cdef class LogBlock:
    cdef object owner           # of the memory
    cdef const char *c_data     # valid as long as the owner keeps it
    cdef int64_t size           # of the memory
    cdef uint64_t salt
    cdef int64_t position       # of its first byte in the segment
    cdef int64_t checked        # checked up to here: the end of a frame
    cdef int64_t following      # the offset after that frame
    cdef FramePart *parts       # owned
    cdef int64_t part_count, part_room
    cdef uint32_t *ends         # owned: total bytes of the bodies up to the end of each row
    cdef int64_t rows, room
    cdef int64_t row            # the next one,
    cdef int64_t part           # and its part
    cdef const char *c_record   # and its record
    cdef const char *c_origin   # and its origin; NULL: it has none
    cdef readonly int64_t first, next       # offsets of the first record, and after the last one
    cdef readonly int64_t largest           # bytes of the largest body

    # Checks the whole frames in the first bytes and takes their records; NO_ERROR or another BlockError.
    cdef int check(self, int64_t length) noexcept nogil
    cdef int add(self, const Frame *frame, int64_t at) noexcept nogil       # the records of a sound frame
    cdef int64_t fitting(self, int64_t max_rows, int64_t max_bytes) noexcept nogil
    cdef int64_t size_of(self, int64_t count) noexcept nogil        # bytes of the next bodies
    cdef int64_t in_part(self, int64_t count) noexcept nogil        # count of the next rows that lie in its part
    cdef void pass_over(self, int64_t count) noexcept nogil         # rows of the part


cdef class BlockMemory:
    cdef ReadFrames job         # its data is owned


cdef class SegmentBlocks:
    cdef BlockMemory memory     # of the last read; replaced while a block uses it
    # Where the last read ended, for a sequential next read: first offset of the segment, offset (-1: the read failed),
    # position.
    cdef int64_t first, known, after
