# What the threads of an IoPool read of a log: blocks of valid frames. What the page cache has may be read on the loop.
# One file stays open between the reads of all cursors of a log: opening and closing it costs as much as a tenth of
# reading a block.

from libc.stdint cimport int64_t, uint64_t

from nsqc.store.disk.pool cimport Job
from nsqc.store.log.buffer cimport Buffer
from nsqc.store.log.frame cimport Frame


cdef struct ReadFrames:
    Job job
    const char *c_folder
    int64_t first           # of the segment, and the rest of what is known of it
    uint64_t salt
    int64_t limit           # where its frames end
    int64_t end             # the offset after its last record
    int64_t position        # of a frame at or before the offset; 0: it has to be found
    int64_t offset          # the first record that is wanted
    int64_t want            # bytes, about; one frame at least
    bint cached             # only what the page cache has
    bint keeps_open         # the file is left open, and may be already
    int fd                  # its descriptor; -1: closed
    # The result.
    int error               # EAGAIN: not in the page cache
    Buffer memory           # owned
    int64_t at, length      # the frames in it: the first has `begin`, or begins with it
    int64_t begin, next     # offsets: of the first record to use, after the last; next == begin: there are none
    int64_t behind          # where the frame after them lies
    int64_t damaged         # records from offset on that are lost: begin is offset + damaged


cdef struct Spot:           # a record in frames that are in memory
    Frame frame             # 0 records: not used yet
    int64_t at              # of the frame
    int64_t index           # of the record in it
    int64_t record_at       # of the record

cdef struct Reader:
    ReadFrames block        # its data is owned
    Spot spot
    bint running            # the block is being read by a thread
    bint stale              # what is being read is not wanted any more

cdef struct OpenFile:       # on the loop only
    int64_t first           # of the segment
    int fd                  # -1: closed


cdef void run_read(Job *c_job) noexcept nogil       # of a ReadFrames
cdef void read_free(ReadFrames *job) noexcept nogil     # its block
cdef void read_close(ReadFrames *job) noexcept nogil    # a file that was left open
# Finds a record that is in frames from c_data on; forward of the last one it costs a step for each record.
cdef const char *spot_find(Spot *spot, const char *c_data, int64_t offset) noexcept nogil

cdef inline bint has_offset(const Reader *reader, int64_t offset) noexcept:
    return reader.block.begin <= offset < reader.block.next

# Whether the last read has found that this record is lost.
cdef inline bint known_damaged(const Reader *reader, int64_t offset) noexcept:
    return reader.block.offset <= offset < reader.block.begin

cdef void reader_release(Reader *reader) noexcept       # its memory, unless a thread reads
cdef void reader_forget(Reader *reader) noexcept        # it has nothing

cdef void file_lend(OpenFile *file, ReadFrames *job) noexcept       # to a read that is run now
# Takes the file back, or the one that the read has opened; True: it stays open.
cdef bint file_return(OpenFile *file, ReadFrames *job, bint closed) noexcept
cdef void file_close(OpenFile *file) noexcept
cdef void file_removed(OpenFile *file, int64_t first) noexcept      # segments before this offset are
