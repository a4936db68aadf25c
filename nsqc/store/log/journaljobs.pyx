"""What threads do with a journal. See the .pxd."""

from libc.errno cimport EEXIST, errno
from libc.stdint cimport int64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free
from libc.string cimport memset
from posix.fcntl cimport O_CREAT, O_DIRECTORY, O_RDONLY, O_RDWR, O_TRUNC
from posix.stat cimport mkdir
from posix.unistd cimport close, dup

from nsqc.store.disk.names cimport PATH_BYTES
from nsqc.store.disk.syscalls cimport (io_open, io_rename, io_size, io_sync_data, io_sync_path, io_truncate,
                                       io_unlink)
from nsqc.store.log.journal cimport JournalState, state_free
from nsqc.store.log.journalfile cimport (files_free, files_free_number, files_load, journal_append, journal_copy,
                                         journal_new_path, journal_path, journal_write_state)
from nsqc.store.log.openfiles cimport waits_open


# ---------------------------------------------------------------------- appending

cdef void run_journal(Job *c_job) noexcept nogil:
    cdef JournalJob *job = <JournalJob *> c_job
    cdef JournalFile before
    cdef bint opens = job.file.fd < 0
    job.error = 0
    if job.makes_folder and mkdir(job.c_folder, 0o700) < 0 and errno != EEXIST:
        job.error = errno
        return
    if job.compaction is not NULL:
        take_place(job)
    if job.file.fd < 0:
        job.error = open_file(job)
    before = job.file
    for _ in range(job.copies):
        if job.error == 0:
            job.error = journal_append(&job.file, job.c_data, job.ops_end, job.id, 0)
    if job.error:
        if job.file.position > before.position:
            io_truncate(job.file.fd, before.position)
        job.file = before
    elif opens:
        job.waits = waits_open(1)
        if not job.waits:
            close(job.file.fd)
            job.file.fd = -1


cdef int open_file(JournalJob *job) noexcept nogil:
    cdef char c_path[PATH_BYTES]
    cdef int opened
    journal_path(c_path, job.c_folder, job.file.number)
    opened = io_open(c_path, O_RDWR | O_CREAT | (O_TRUNC if job.file.position == 0 else 0))
    job.file.fd = max(opened, -1)
    return -min(opened, 0)


cdef void take_place(JournalJob *job) noexcept nogil:
    """What the new file has, and what it does not have yet, is what the old one has. Its descriptor stays open until it
    is synced: that reports each page that could not be written."""
    cdef char c_path[PATH_BYTES]
    cdef char c_new[PATH_BYTES]
    cdef Compaction *compaction = job.compaction
    cdef int kept = -1
    compaction.error = journal_copy(&compaction.file, job.c_folder, job.file.number, &compaction.copied,
                                    job.file.position)
    if compaction.error == 0:
        kept = dup(compaction.file.fd)
        compaction.error = errno if kept < 0 else 0
    if compaction.error == 0:
        journal_new_path(c_new, job.c_folder)
        journal_path(c_path, job.c_folder, compaction.file.number)
        compaction.error = io_rename(c_new, c_path)
    if compaction.error:
        if kept >= 0:
            close(kept)
        compaction_undo(compaction)
        return
    if job.file.fd >= 0:
        close(job.file.fd)
    job.file = compaction.file
    compaction.file.fd = kept


# ---------------------------------------------------------------------- compaction

cdef void run_compact(Job *c_job) noexcept nogil:
    cdef Compaction *job = <Compaction *> c_job
    cdef char c_path[PATH_BYTES]
    cdef int64_t limit
    cdef JournalState state
    memset(&state, 0, sizeof(state))
    job.file.fd = -1
    job.error = files_load(&job.files, &state, job.c_folder, job.number, job.copied)
    if job.error == 0:
        job.file.number = files_free_number(&job.files, job.number + 1)
        job.file.begins = state.at
        journal_new_path(c_path, job.c_folder)
        job.file.fd = io_open(c_path, O_RDWR | O_CREAT | O_TRUNC)
        if job.file.fd < 0:
            job.error = -job.file.fd
    if job.error == 0:
        job.error = journal_write_state(&job.file, &state)
        job.state_bytes = job.file.position
    state_free(&state)
    if job.error == 0:
        # As a rule that is nearly all, so the frame that waits for the rest does not wait long.
        journal_path(c_path, job.c_folder, job.number)
        job.error = size_of(c_path, &limit) or journal_copy(&job.file, job.c_folder, job.number, &job.copied, limit)
    if job.error == 0:
        job.error = io_sync_data(job.file.fd)
    if job.error:
        compaction_undo(job)


cdef int size_of(const char *c_path, int64_t *size) noexcept nogil:
    """0 or errno."""
    cdef int fd = io_open(c_path, O_RDONLY)
    if fd < 0:
        return -fd
    size[0] = io_size(fd)
    close(fd)
    return <int> -min(size[0], <int64_t> 0)


cdef void compaction_undo(Compaction *job) noexcept nogil:
    cdef char c_new[PATH_BYTES]
    if job.file.fd >= 0:
        close(job.file.fd)
        job.file.fd = -1
        journal_new_path(c_new, job.c_folder)
        io_unlink(c_new)


cdef void run_clean(Job *c_job) noexcept nogil:
    cdef Compaction *job = <Compaction *> c_job
    cdef char c_path[PATH_BYTES]
    cdef char c_bad[PATH_BYTES + 4]
    cdef int64_t index
    job.error = io_sync_data(job.file.fd) or io_sync_path(job.c_folder, O_RDONLY | O_DIRECTORY)
    for index in range(job.files.count):
        if job.error == 0:
            journal_path(c_path, job.c_folder, job.files.items[index].number)
            if job.files.items[index].damaged:
                snprintf(c_bad, sizeof(c_bad), "%s.bad", c_path)
                job.error = io_rename(c_path, c_bad)
            else:
                job.error = io_unlink(c_path)
    close(job.file.fd)
    job.file.fd = -1


cdef void compaction_free(Compaction *job) noexcept nogil:
    files_free(&job.files)
    free(job)
