"""Seals segments. See the .pxd."""

cimport cython
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free
from posix.fcntl cimport O_RDWR
from posix.unistd cimport close
from cpython.bytes cimport PyBytes_AS_STRING

from nsqc.store.disk.names cimport PATH_BYTES
from nsqc.store.disk.syscalls cimport io_open, io_truncate
from nsqc.store.log.index cimport index_free, index_write
from nsqc.store.log.segmenthead cimport segment_path
from nsqc.store.seams cimport Job, LoopWork


cdef struct SealJob:
    Job job
    const char *c_folder
    int64_t first, position
    uint64_t salt
    Index index             # owned


@cython.final
cdef class Sealer(LoopWork):
    """Keeps the folder's name alive while a job runs."""

    cdef bytes c_folder

    cdef void job_done(self, Job *c_job) noexcept:
        index_free(&(<SealJob *> c_job).index)
        free(c_job)


cdef void run_seal(Job *c_job) noexcept nogil:
    cdef SealJob *job = <SealJob *> c_job
    cdef char c_path[PATH_BYTES]
    cdef int fd
    segment_path(c_path, job.c_folder, job.first)
    fd = io_open(c_path, O_RDWR)
    if fd >= 0:
        index_write(&job.index, fd, job.position, job.salt)
        close(fd)


cdef void seal_begin(IoPool io, bytes c_folder, const Segment *segment, const Index *index) noexcept:
    cdef SealJob *job = <SealJob *> calloc(1, sizeof(SealJob))
    cdef Sealer owner = Sealer.__new__(Sealer)
    if job is NULL or index.count == 0:
        free(job)
        free(index.items)
        return
    owner.c_folder = c_folder
    job.job.run = run_seal
    job.job.bytes = index.count * sizeof(index.items[0])
    job.c_folder = PyBytes_AS_STRING(c_folder)
    job.first = segment.first
    job.position = segment.position
    job.salt = segment.salt
    job.index = index[0]
    io.submit(&job.job, owner)


cdef int segment_trim(const char *c_folder, const Segment *segment) noexcept nogil:
    cdef char c_path[PATH_BYTES]
    cdef int error, fd
    segment_path(c_path, c_folder, segment.first)
    fd = io_open(c_path, O_RDWR)
    if fd < 0:
        return -fd
    error = io_truncate(fd, segment.position)
    close(fd)
    return error
