# Blocks of frames that a cursor has read from its log, and the file that stays open between reads of all cursors:
# opening and closing it costs as much as a tenth of reading a block.

from libc.stdint cimport int64_t

from nsqc.store.log.read cimport ReadFrames, Spot


cdef struct Reader:
    ReadFrames block        # its data is owned
    Spot spot
    bint running            # the block is being read by a thread
    bint stale              # what is being read is not wanted any more

cdef struct OpenFile:       # on the loop only
    int64_t first           # of the segment
    int fd                  # -1: closed


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
