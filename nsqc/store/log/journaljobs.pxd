# What threads of an IoPool do with the journal of a log: append to it, and replace its files by one with their state.

from libc.stdint cimport int64_t
from nsqc.store.disk.pool cimport Job
from nsqc.store.log.buffer cimport Buffer
from nsqc.store.log.journalfile cimport FoundFiles, JournalFile

cdef struct Compaction:
    Job job
    const char *c_folder        # borrowed
    FoundFiles files            # owned: those that are replaced; nothing is appended to them any more
    JournalFile file            # with their state: its number is given
    bint placed                 # the file has its name
    int error                   # errno; the others may still be there

cdef struct JournalJob:
    Job job
    const char *c_folder        # borrowed
    JournalFile file
    Buffer out                  # owned: a frame of operations
    int64_t id                  # its number
    int copies                  # of it
    bint makes_folder
    int error


cdef void run_journal(Job *c_job) noexcept nogil        # of a JournalJob
# Of a Compaction. Its steps: writes the state under a temporary name, and syncs it; gives it its name; removes the
# others. A kill between any two leaves files that say the same.
cdef void run_compact(Job *c_job) noexcept nogil
cdef void compact_write(Compaction *job) noexcept nogil
cdef void compact_place(Compaction *job) noexcept nogil
cdef void compact_clean(Compaction *job) noexcept nogil
cdef void compaction_free(Compaction *job) noexcept nogil
