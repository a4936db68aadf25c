# Jobs that an IoPool's threads run for a disk queue: writing records to files and reading blocks of them.

from libc.stdint cimport int64_t
from nsqc.store.disk.pool cimport Job
from nsqc.store.disk.segment cimport Block
from nsqc.store.disk.writebuf cimport WriteBuf

cdef enum:
    FEW_FILES = 1000            # consecutive numbers to try; beyond that, the folder is listed


cdef struct WriteJob:
    Job job
    const char *c_prefix    # of the queue's file names; borrowed
    WriteBuf out            # owned
    int64_t number, at      # where it starts
    int64_t max_file
    bint partial            # on a full disk, keep the records that fit
    bint stale              # the queue has been emptied meanwhile
    # The result.
    int error
    int64_t end_number, end_at      # after the last written record
    int64_t first_end               # where the first file ends; below 0: there is only one
    int64_t kept                    # bytes of out that are in files

cdef struct ReadJob:
    Job job
    const char *c_prefix
    int64_t number, at, limit, max_record, want
    int64_t last_number, last_at    # the write position, for counting
    int64_t committed               # of the queue at that time
    bint probes             # only looks for damage: the block is dropped unless pop() waits for it
    bint counts             # on damage, count the remaining records
    bint stale              # as above
    Block block             # owned
    # The result, if records were counted after damage.
    int64_t here            # records in the rest of this file
    int64_t lost            # bytes there that belong to no record
    int64_t later           # records in later files
    int64_t following       # the first existing later file; 0: none of those tried


cdef void run_write(Job *c_job) noexcept nogil      # of a WriteJob
cdef void run_read(Job *c_job) noexcept nogil       # of a ReadJob
