# Journal jobs on the threads of an IoPool: append to it, and replace its files by one with their state.

from libc.stdint cimport int64_t
from nsqc.store.disk.pool cimport Job
from nsqc.store.log.buffer cimport Buffer
from nsqc.store.log.journalfile cimport FoundFiles, JournalFile

cdef struct Compaction:
    Job job
    const char *c_folder        # borrowed
    FoundFiles files            # owned: the files to replace; nothing is appended to them any more
    JournalFile file            # the replacement, with a given number
    bint placed                 # the file has its final name
    int error                   # errno; the replaced files may still exist

cdef struct JournalJob:
    Job job
    const char *c_folder        # borrowed
    JournalFile file
    Buffer out                  # owned: a frame of operations
    int64_t id                  # its number
    int copies                  # how often to write it
    bint makes_folder
    int error


cdef void run_journal(Job *c_job) noexcept nogil        # of a JournalJob
# Runs a Compaction: writes the state under a temporary name and syncs it, renames it, removes the replaced files. A
# kill between any two steps leaves files with the same content.
cdef void run_compact(Job *c_job) noexcept nogil
cdef void compact_write(Compaction *job) noexcept nogil
cdef void compact_place(Compaction *job) noexcept nogil
cdef void compact_clean(Compaction *job) noexcept nogil
cdef void compaction_free(Compaction *job) noexcept nogil
