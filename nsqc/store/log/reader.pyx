"""Blocks of frames and files that stay open. See the .pxd."""

from libc.errno cimport EAGAIN
from libc.stdint cimport int64_t
from libc.string cimport memset
from posix.unistd cimport close

from nsqc.store.log.openfiles cimport stays_open, was_closed
from nsqc.store.log.read cimport read_free


cdef void reader_release(Reader *reader) noexcept:
    if not reader.running:
        read_free(&reader.block)
        reader.block.want = 0
        memset(&reader.spot, 0, sizeof(Spot))


cdef void reader_forget(Reader *reader) noexcept:
    if reader.running:
        reader.stale = True
    else:
        reader.block.begin = reader.block.next = -1
        memset(&reader.spot, 0, sizeof(Spot))


cdef void file_lend(OpenFile *file, ReadFrames *job) noexcept:
    job.keeps_open = True
    job.fd = file.fd if file.first == job.first else -1


cdef bint file_return(OpenFile *file, ReadFrames *job, bint closed) noexcept:
    cdef bint sound = job.error == 0 or job.error == EAGAIN
    cdef int fd = job.fd
    job.keeps_open = False
    job.fd = -1
    if fd < 0:
        return False
    if fd == file.fd:
        if not sound:
            file_close(file)        # the next read opens what is there then
        return False
    file_close(file)
    if closed or not sound or not stays_open(1):
        close(fd)
        return False
    file.first = job.first
    file.fd = fd
    return True


cdef void file_close(OpenFile *file) noexcept:
    if file.fd >= 0:
        close(file.fd)
        was_closed(1)
    file.fd = -1


cdef void file_removed(OpenFile *file, int64_t first) noexcept:
    if file.first < first:
        file_close(file)
