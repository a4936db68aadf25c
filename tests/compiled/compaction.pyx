"""Compaction of a journal (nsqc.store.log.journal), driven from Python."""

import os

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc
from libc.string cimport memset

from nsqc.store.log.journal cimport (Compaction, JournalState, compact_clean, compact_place, compact_write,
                                     compaction_free, files_add, files_free_number, files_load, journal_number,
                                     state_free)


def compact_folder(str folder not None, int steps=3):
    """Replaces the journal of a folder by one file, or runs this many steps of that. Raises OSError."""
    cdef bytes c_folder = os.fsencode(folder)
    cdef Compaction *job = <Compaction *> calloc(1, sizeof(Compaction))
    cdef int64_t number
    cdef JournalState state
    if job is NULL:
        raise MemoryError
    job.c_folder = c_folder
    try:
        for name in os.listdir(folder):
            number = journal_number(os.fsencode(name))
            if number and files_add(&job.files, number):
                raise MemoryError
        memset(&state, 0, sizeof(state))
        job.error = files_load(&job.files, &state, job.c_folder)
        state_free(&state)
        job.file.number = files_free_number(&job.files, job.files.last.number + 1)
        if job.error == 0:
            compact_write(job)
        if job.error == 0 and steps > 1:
            compact_place(job)
        if job.error == 0 and steps > 2:
            compact_clean(job)
        if job.error:
            raise OSError(job.error, os.strerror(job.error), folder)
    finally:
        compaction_free(job)
