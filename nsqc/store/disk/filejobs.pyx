"""Writes and reads queue files, on threads that do not hold the GIL. See the .pxd."""

from libc.errno cimport ENOENT
from libc.stdint cimport int64_t
from posix.fcntl cimport O_CREAT, O_RDWR
from posix.unistd cimport close, unlink

from nsqc.store.disk.names cimport PATH_BYTES, path_store
from nsqc.store.disk.segment cimport Tally, block_read, tally
from nsqc.store.disk.syscalls cimport io_open, io_truncate, io_write
from nsqc.wire.const cimport SIZE_BYTES
from nsqc.wire.hton cimport load_i32


cdef int64_t whole_records(const char *c_from, int64_t length) noexcept nogil:
    """Bytes of the complete records within the first length bytes."""
    cdef int64_t offset = 0, size
    while offset + SIZE_BYTES <= length:
        size = SIZE_BYTES + <int64_t> load_i32(c_from + offset)
        if offset + size > length:
            break
        offset += size
    return offset


cdef int write_span(WriteJob *job, int64_t number, int64_t at, const char *c_from, int64_t length,
                    int64_t *kept) noexcept nogil:
    """Writes records to one file; 0 or errno. kept: bytes that stay in the file."""
    cdef char c_path[PATH_BYTES]
    cdef int64_t written = 0
    cdef int error, fd
    path_store(c_path, job.c_prefix, number)
    kept[0] = 0
    fd = io_open(c_path, O_RDWR | O_CREAT)
    if fd < 0:
        return -fd
    error = io_write(fd, c_from, length, at, &written)
    if error:
        if job.partial:
            kept[0] = whole_records(c_from, written)
        io_truncate(fd, at + kept[0])
    else:
        kept[0] = length
    close(fd)
    return error


cdef void run_write(Job *c_job) noexcept nogil:
    cdef WriteJob *job = <WriteJob *> c_job
    cdef char c_path[PATH_BYTES]
    cdef int64_t number = job.number, at = job.at, offset = job.out.taken, begin, size, kept
    cdef int fd
    job.first_end = -1
    job.end_number = number
    job.end_at = at
    job.kept = offset
    while offset < job.out.length:
        begin = offset
        while offset < job.out.length:
            size = SIZE_BYTES + <int64_t> load_i32(job.out.c_data + offset)
            if at + offset - begin > 0 and at + offset - begin + size > job.max_file:
                break
            offset += size
        if offset > begin:
            job.error = write_span(job, number, at, job.out.c_data + begin, offset - begin, &kept)
            job.kept += kept
            at += kept
            if job.error:
                break
        if offset < job.out.length:
            job.first_end = at if job.first_end < 0 else job.first_end
            number += 1
            at = 0
    if job.error and not job.partial:
        # Nothing of it stays in the files; the loop relies on that.
        while number > job.number:
            path_store(c_path, job.c_prefix, number)
            unlink(c_path)
            number -= 1
            if number == job.number:
                path_store(c_path, job.c_prefix, number)
                fd = io_open(c_path, O_RDWR)
                if fd >= 0:
                    io_truncate(fd, job.at)
                    close(fd)
        job.kept = job.out.taken
        at = job.at
    if job.error and at == 0 and number > job.number:
        # Nothing was written to the last file: no file.
        path_store(c_path, job.c_prefix, number)
        unlink(c_path)
        number -= 1
        at = job.first_end if number == job.number else job.max_file
    job.end_number = number
    job.end_at = at


cdef void run_read(Job *c_job) noexcept nogil:
    cdef ReadJob *job = <ReadJob *> c_job
    cdef char c_path[PATH_BYTES]
    cdef Tally rest
    cdef int64_t number
    path_store(c_path, job.c_prefix, job.number)
    block_read(&job.block, c_path, job.at, job.limit, job.max_record, job.want)
    if not job.counts or (job.block.answer == 1 and job.block.begin == job.at):
        return
    if job.block.answer < 0 and job.block.answer != -ENOENT:
        return
    if job.block.answer >= 0:
        rest = tally(c_path, job.at, job.limit, job.max_record)
        job.here = rest.records
        job.lost = rest.damaged + rest.size - rest.end
    for number in range(job.number + 1, job.last_number + 1):
        path_store(c_path, job.c_prefix, number)
        rest = tally(c_path, 0, job.last_at if number == job.last_number else -1, job.max_record)
        job.later += rest.records
        if rest.error != ENOENT and job.following == 0:
            job.following = number
        if number - job.number > FEW_FILES and rest.error == ENOENT:
            break
