# Reading a log: one frame reader for cursors, HTTP, Spark and tools.

from libc.stdint cimport int64_t, uint32_t, uint64_t

from nsqc.store.disk.fileio cimport Job
from nsqc.store.log.frame cimport Buffer, Frame


# ====================================================================== read
# Reads of a log on the threads of an IoPool: blocks of valid frames. Reads from the page cache may run on the loop.
# All cursors of a log share one file that stays open between their reads: opening and closing it costs up to a tenth of
# reading a block.

cdef struct ReadFrames:
    Job job
    const char *c_folder
    int64_t first           # of the segment; the next fields describe it, too
    uint64_t salt
    int64_t limit           # where its frames end
    int64_t end             # the offset after its last record
    int64_t position        # of a frame at or before the offset; 0: unknown
    int64_t offset          # the first wanted record
    int64_t want            # bytes, about; one frame at least
    bint cached             # reads the page cache only
    bint keeps_open         # keeps the file open, which may be open already
    int fd                  # its descriptor; -1: closed
    # The result.
    int error               # EAGAIN: not in the page cache
    Buffer memory           # owned
    int64_t at, length      # the frames in it: the first starts with `begin` or contains it
    int64_t begin, next     # offsets: of the first record to use, after the last; equal: no records
    int64_t after          # position of the frame after them
    int64_t damaged         # lost records from offset on: begin is offset + damaged


cdef struct Spot:           # a record in frames in memory
    Frame frame             # 0 records: unused
    int64_t at              # of the frame
    int64_t index           # of the record in it
    int64_t record_at       # of the record

cdef struct Reader:
    ReadFrames block        # its data is owned
    Spot spot
    bint running            # a thread is reading the block
    bint stale              # discard the result of that read

cdef struct OpenFile:       # on the loop only
    int64_t first           # of the segment
    int fd                  # -1: closed


cdef void run_read(Job *c_job) noexcept nogil       # of a ReadFrames
# Finds a record in frames from c_data on; ahead of the previous one it steps over each record.
cdef const char *spot_find(Spot *spot, const char *c_data, int64_t offset) noexcept nogil

cdef inline bint has_offset(const Reader *reader, int64_t offset) noexcept:
    return reader.block.begin <= offset < reader.block.next

# Whether the last read found this record lost.
cdef inline bint known_damaged(const Reader *reader, int64_t offset) noexcept:
    return reader.block.offset <= offset < reader.block.begin

cdef void reader_release(Reader *reader) noexcept       # frees its memory, unless a thread reads
cdef void reader_forget(Reader *reader) noexcept        # empties it

cdef void file_lend(OpenFile *file, ReadFrames *job) noexcept       # to a read that runs right away
# Takes the file back, or the one the read has opened; True: it stays open.
cdef bint file_return(OpenFile *file, ReadFrames *job, bint closed) noexcept
cdef void file_close(OpenFile *file) noexcept
cdef void file_removed(OpenFile *file, int64_t first) noexcept      # segments before this offset were removed


# ====================================================================== lines of JSON
# Records as lines of JSON.

# Bytes of the line of one record, given by its index in the frame at c_frame.
cdef int64_t line_bytes(const char *c_frame, const Frame *frame, const char *c_record, int64_t index) noexcept nogil


# ====================================================================== reading

# Finds records in a segment by offset or time. For Python only: see the .pyx.


# ====================================================================== block
# Checked log frames in memory, for readers outside the daemon: Spark and the tools. See the .pyx.

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
