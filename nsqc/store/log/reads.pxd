# What the threads of an IoPool read of a log: records that match their checksums. What the page cache has may be read
# on the loop.

from libc.stdint cimport int64_t
from nsqc.store.disk.pool cimport Job
from nsqc.store.log.resume cimport Torn


cdef struct ReadRecords:
    Job job
    const char *c_folder
    int64_t first           # of the segment
    int64_t offset, limit   # records wanted; the limit is the end of the segment
    int64_t bytes           # of the segment's records; -1: as many as the file has
    int64_t want            # bytes, about; one record at least
    bint cached             # only what the page cache has
    bint keeps_open         # the files are left open, and may be already
    int dat, idx            # their descriptors; -1: closed
    # An offset and its position (-1: it cannot be found out), for records whose entries are damaged.
    int64_t known, known_at
    int64_t known_in        # the first offset of that segment
    Torn torn
    # The result.
    int error               # EAGAIN: not in the page cache
    char *c_data            # owned: whole verified records
    int64_t length, room
    int64_t begin, end      # their offsets; begin is offset + damaged
    int64_t damaged         # records from offset on that are not intact
    bint no_index           # of the segment: somebody has removed it


cdef void run_read_records(Job *c_job) noexcept nogil       # of a ReadRecords
cdef void records_free(ReadRecords *job) noexcept nogil     # the block
cdef void records_close(ReadRecords *job) noexcept nogil    # files that were left open
