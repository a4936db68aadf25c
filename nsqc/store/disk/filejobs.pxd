# What the threads of an IoPool do for a disk queue: write its records to files, and read blocks of them.

from libc.stdint cimport int64_t
from nsqc.store.disk.pool cimport Job
from nsqc.store.disk.segment cimport Block
from nsqc.store.disk.writebuf cimport OutBuf

cdef enum:
    PATH_BYTES = 4500           # longest path of a data file, terminator included
    FEW_FILES = 1000            # missing in a row; beyond that, files are listed instead of counted through


cdef struct WriteJob:
    Job job
    const char *c_prefix    # of the queue's file names; borrowed
    OutBuf out              # owned
    int64_t number, at      # where it begins
    int64_t max_file
    bint partial            # where the disk is full, keep what fits
    bint stale              # the queue has been emptied meanwhile
    # What has come of it.
    int error
    int64_t end_number, end_at      # behind the last record that was written
    int64_t first_end               # where the first file ended, if there were more
    int64_t kept                    # bytes of out that are in the files

cdef struct ReadJob:
    Job job
    const char *c_prefix
    int64_t number, at, limit, max_record, want
    int64_t last_number, last_at    # the write position, for counting
    int64_t committed               # of the queue by then
    bint probes             # only to meet damage; what is read is dropped, unless it is waited for
    bint counts             # if damage is met, count what is left
    bint stale
    Block block             # owned
    int64_t here            # records in the rest of this file
    int64_t lost            # bytes in it that belong to none
    int64_t behind          # records in the files behind it
    int64_t following       # the first of those that is there; 0: none was met


cdef void run_write(Job *c_job) noexcept nogil      # of a WriteJob
cdef void run_read(Job *c_job) noexcept nogil       # of a ReadJob
