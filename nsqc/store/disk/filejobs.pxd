# What the threads of an IoPool do for a disk queue: they write its records to files and read blocks of them.

from libc.stdint cimport int64_t
from nsqc.store.disk.pool cimport Job
from nsqc.store.disk.segment cimport Block
from nsqc.store.disk.writebuf cimport WriteBuf

cdef enum:
    FEW_FILES = 1000            # numbers in a row that are tried; beyond that, the folder is listed


cdef struct WriteJob:
    Job job
    const char *c_prefix    # of the queue's file names; borrowed
    WriteBuf out            # owned
    int64_t number, at      # where it begins
    int64_t max_file
    bint partial            # on a full disk, keep what fits
    bint stale              # the queue has been emptied meanwhile
    # The result.
    int error
    int64_t end_number, end_at      # behind the last record that was written
    int64_t first_end               # where the first file ends; below 0: there is only one
    int64_t kept                    # bytes of out that are in files now

cdef struct ReadJob:
    Job job
    const char *c_prefix
    int64_t number, at, limit, max_record, want
    int64_t last_number, last_at    # the write position, for counting
    int64_t committed               # of the queue at that time
    bint probes             # only looks for damage: the block is dropped unless pop() waits for it
    bint counts             # if there is damage, count what is left
    bint stale              # as above
    Block block             # owned
    # The result, if there was damage to count behind.
    int64_t here            # records in the rest of this file
    int64_t lost            # bytes there that belong to none
    int64_t behind          # records in the files behind it
    int64_t following       # the first of those that exists; 0: none of those tried


cdef void run_write(Job *c_job) noexcept nogil      # of a WriteJob
cdef void run_read(Job *c_job) noexcept nogil       # of a ReadJob
