# The files of the segment that a log's channels read, which stay open from one block to the next: opening and closing
# them costs as much as a tenth of reading a block. On the loop only.

from libc.stdint cimport int64_t
from nsqc.store.log.reads cimport ReadRecords


cdef struct ReadFiles:
    int64_t first           # of the segment
    int dat, idx            # descriptors; -1: closed

cdef void readfiles_lend(ReadFiles *files, ReadRecords *job) noexcept       # to a read that is run now
# Takes files back, the reader's if it has opened some; True: these stay open.
cdef bint readfiles_return(ReadFiles *files, ReadRecords *job, bint closed) noexcept
cdef void readfiles_close(ReadFiles *files) noexcept
cdef void readfiles_removed(ReadFiles *files, int64_t first) noexcept       # segments before this offset are
