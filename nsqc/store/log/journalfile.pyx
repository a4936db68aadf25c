"""Writes to a journal, without the GIL. See the .pxd."""

from libc.errno cimport EEXIST, errno
from libc.stdint cimport int64_t, uint32_t
from libc.stdio cimport snprintf
from posix.fcntl cimport O_CREAT, O_RDWR, O_TRUNC
from posix.stat cimport mkdir
from posix.unistd cimport close

from nsqc.store.disk.names cimport PATH_BYTES
from nsqc.store.disk.syscalls cimport io_open, io_truncate, io_write
from nsqc.store.log.journal cimport journal_head
from nsqc.store.log.openfiles cimport waits_open
from nsqc.store.log.ops cimport JOURNAL_HEAD_BYTES


cdef void run_journal(Job *c_job) noexcept nogil:
    cdef JournalJob *job = <JournalJob *> c_job
    cdef char c_path[PATH_BYTES]
    cdef char head[JOURNAL_HEAD_BYTES]
    cdef int64_t written
    cdef bint opens = job.fd < 0
    job.error = 0
    if job.makes_folder and mkdir(job.c_folder, 0o700) < 0 and errno != EEXIST:
        job.error = errno
        return
    if job.fd < 0:
        snprintf(c_path, PATH_BYTES, "%s/cursors.%06lld.journal", job.c_folder, <long long> job.number)
        job.fd = io_open(c_path, O_RDWR | O_CREAT | (O_TRUNC if job.at == 0 else 0))
        if job.fd < 0:
            job.error = -job.fd
            job.fd = -1
            return
    if job.at == 0:
        journal_head(head, <uint32_t> job.number)
        job.error = io_write(job.fd, head, JOURNAL_HEAD_BYTES, 0, &written)
        if job.error:
            io_truncate(job.fd, 0)
            return
        job.at = JOURNAL_HEAD_BYTES
    job.error = io_write(job.fd, job.c_data, job.length, job.at, &written)
    if job.error:
        io_truncate(job.fd, job.at)
        return
    job.at += job.length
    if opens:
        job.waits = waits_open(1)
        if not job.waits:
            close(job.fd)
            job.fd = -1
