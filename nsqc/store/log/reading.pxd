# Reading a log: one frame reader for cursors, HTTP, Spark and tools. The .pyx has what is for Python only.

from libc.stdint cimport int64_t, uint64_t

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
    bint remote             # its frames were fetched
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
# The files of segments that begin at `first` or later, but before `end`, were removed or replaced.
cdef void file_gone(OpenFile *file, int64_t first, int64_t end) noexcept


# ====================================================================== readers
# Readers that wait for future records.

cdef class Readers:
    # Of one log; created for the first waiting reader.
    cdef object loop                # None: all are called at once
    cdef dict waiting               # WaitsForRecords in the order they came: None
    cdef list woken                 # still to be called

    cdef WaitsForRecords add(self, int64_t offset, call)
    cdef void wake(self, int64_t end, bint closed) noexcept     # those before an offset; closed: all, now


cdef class WaitsForRecords:
    cdef Readers readers
    cdef int64_t offset
    cdef object call
