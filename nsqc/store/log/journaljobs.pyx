"""Journal jobs on threads. See the .pxd."""

from libc.errno cimport EEXIST, errno
from libc.stdint cimport int64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free
from libc.string cimport memset
from posix.fcntl cimport O_CREAT, O_DIRECTORY, O_RDONLY, O_RDWR, O_TRUNC
from posix.stat cimport mkdir
from posix.unistd cimport close

from nsqc.store.disk.names cimport PATH_BYTES
from nsqc.store.disk.syscalls cimport io_open, io_rename, io_sync_data, io_sync_path, io_truncate, io_unlink
from nsqc.store.log.journal cimport JournalState, state_free
from nsqc.store.log.journalfile cimport (files_free, files_load, journal_append, journal_new_path, journal_path,
                                         journal_write_state)
from nsqc.store.log.openfiles cimport close_counted, count_open, too_many_open


# ---------------------------------------------------------------------- appending

cdef void run_journal(Job *c_job) noexcept nogil:
    cdef JournalJob *job = <JournalJob *> c_job
    cdef JournalFile before
    cdef char c_path[PATH_BYTES]
    job.error = 0
    if job.makes_folder and mkdir(job.c_folder, 0o700) < 0 and errno != EEXIST:
        job.error = errno
        return
    if job.file.fd < 0:
        journal_path(c_path, job.c_folder, job.file.number)
        job.error = open_file(&job.file, c_path, O_TRUNC if job.file.position == 0 else 0)
        count_open(job.error == 0)
    before = job.file
    for _ in range(job.copies):
        if job.error == 0:
            job.error = journal_append(&job.file, job.out.c_data, job.out.length, job.id, 0)
    if job.error:
        if job.file.position > before.position:
            io_truncate(job.file.fd, before.position)
        job.file = before
    elif too_many_open():
        close_counted(&job.file.fd)


cdef int open_file(JournalFile *file, const char *c_path, int flags) noexcept nogil:
    """0 or errno."""
    cdef int opened = io_open(c_path, O_RDWR | O_CREAT | flags)
    file.fd = max(opened, -1)
    return -min(opened, 0)


# ---------------------------------------------------------------------- compaction

cdef void run_compact(Job *c_job) noexcept nogil:
    cdef Compaction *job = <Compaction *> c_job
    compact_write(job)
    if job.error == 0:
        compact_place(job)
    if job.error == 0:
        compact_clean(job)


cdef void compact_write(Compaction *job) noexcept nogil:
    cdef char c_new[PATH_BYTES]
    cdef JournalState state
    memset(&state, 0, sizeof(state))
    job.error = files_load(&job.files, &state, job.c_folder)
    if job.error == 0:
        job.file.begins = state.at
        journal_new_path(c_new, job.c_folder)
        job.error = open_file(&job.file, c_new, O_TRUNC)
        if job.error == 0:
            job.error = journal_write_state(&job.file, &state) or io_sync_data(job.file.fd)
            close(job.file.fd)
        if job.error:
            io_unlink(c_new)
    state_free(&state)


cdef void compact_place(Compaction *job) noexcept nogil:
    cdef char c_path[PATH_BYTES]
    cdef char c_new[PATH_BYTES]
    journal_new_path(c_new, job.c_folder)
    journal_path(c_path, job.c_folder, job.file.number)
    job.error = io_rename(c_new, c_path)
    job.placed = job.error == 0
    if job.placed:
        job.error = io_sync_path(job.c_folder, O_RDONLY | O_DIRECTORY)
    else:
        io_unlink(c_new)


cdef void compact_clean(Compaction *job) noexcept nogil:
    cdef char c_path[PATH_BYTES]
    cdef char c_bad[PATH_BYTES + 4]
    cdef int64_t index
    for index in range(job.files.count):
        if job.error == 0:
            journal_path(c_path, job.c_folder, job.files.items[index].number)
            if job.files.items[index].damaged:
                snprintf(c_bad, sizeof(c_bad), "%s.bad", c_path)
                job.error = io_rename(c_path, c_bad)
            else:
                job.error = io_unlink(c_path)


cdef void compaction_free(Compaction *job) noexcept nogil:
    files_free(&job.files)
    free(job)
