# What a thread of an IoPool does to write to the journal of a log.

from libc.stdint cimport int64_t

from nsqc.store.disk.pool cimport Job


cdef struct JournalJob:
    Job job
    const char *c_folder
    int64_t number, at      # which file, and where in it
    char *c_data            # owned: a frame
    int64_t length
    int fd                  # -1: to be opened; afterwards the descriptor, -1 if it was closed
    bint waits              # it was opened and counts as waits_open()
    bint makes_folder
    int error

cdef void run_journal(Job *c_job) noexcept nogil        # of a JournalJob
