"""Compaction of a journal (nsqc.store.log.journaljobs), driven from Python."""

import os

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc
from libc.string cimport memset
from posix.unistd cimport close

from nsqc.store.log.journal cimport JournalState, state_free
from nsqc.store.log.journalfile cimport files_add, files_load, journal_number
from nsqc.store.log.journaljobs cimport (Compaction, JournalJob, compaction_free, run_clean, run_compact, run_journal)


def compact_folder(str folder not None, int steps=3):
    """Replaces the journal of a folder by one file, or runs this many steps of that. Raises OSError."""
    cdef bytes c_folder = os.fsencode(folder)
    cdef Compaction *job = <Compaction *> calloc(1, sizeof(Compaction))
    cdef JournalJob append
    cdef int64_t number
    cdef JournalState state
    memset(&append, 0, sizeof(append))
    if job is NULL:
        raise MemoryError
    job.file.fd = -1
    job.c_folder = append.c_folder = c_folder
    try:
        for name in os.listdir(folder):
            number = journal_number(os.fsencode(name))
            if number and files_add(&job.files, number):
                raise MemoryError
        memset(&state, 0, sizeof(state))
        job.error = files_load(&job.files, &state, job.c_folder, 0, 0)
        state_free(&state)
        append.file = job.files.last
        if job.error == 0 and append.file.frames == 0:       # as the first write does
            open(f"{folder}/cursors.{append.file.number:06}", "xb").close()
            files_add(&job.files, append.file.number)
        job.number, job.copied = append.file.number, append.file.position
        if job.error == 0:
            run_compact(&job.job)
        if job.error == 0 and steps > 1:
            append.compaction = job
            run_journal(&append.job)
            if append.file.fd >= 0:
                close(append.file.fd)
        if job.error == 0 and steps > 2:
            run_clean(&job.job)
        elif job.file.fd >= 0:
            close(job.file.fd)
        if job.error:
            raise OSError(job.error, os.strerror(job.error), folder)
    finally:
        compaction_free(job)
