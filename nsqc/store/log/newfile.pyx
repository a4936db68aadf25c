"""Creates files atomically. See the .pxd."""

from libc.errno cimport EEXIST, EISDIR, ENOTDIR, ENOTEMPTY, errno
from libc.stdint cimport int64_t
from libc.stdio cimport rename, snprintf
from posix.fcntl cimport O_CREAT, O_EXCL, O_RDWR
from posix.unistd cimport close, unlink

from nsqc.store.disk.names cimport PATH_BYTES
from nsqc.store.disk.syscalls cimport io_open, io_rename, io_sync_data, io_write

cdef enum:
    MOST_ASIDE = 100            # most folders kept per name


cdef int newfile_open(const char *c_temporary) noexcept nogil:
    # Exclusively: a link of that name may point elsewhere.
    cdef int error, fd = io_open(c_temporary, O_RDWR | O_CREAT | O_EXCL)
    if fd != -EEXIST:
        return fd
    error = set_aside(c_temporary) if unlink(c_temporary) < 0 and errno == EISDIR else 0
    return -error if error else io_open(c_temporary, O_RDWR | O_CREAT | O_EXCL)


cdef int newfile_place(const char *c_temporary, const char *c_path) noexcept nogil:
    cdef int error = io_rename(c_temporary, c_path)
    if error == EISDIR:
        error = set_aside(c_path)
        if error == 0:
            error = io_rename(c_temporary, c_path)
    return error


cdef int set_aside(const char *c_path) noexcept nogil:
    """0 or errno."""
    cdef char c_bad[PATH_BYTES]
    cdef int number
    snprintf(c_bad, PATH_BYTES, "%s.bad", c_path)
    for number in range(1, MOST_ASIDE):
        if rename(c_path, c_bad) == 0:
            return 0
        if errno != EEXIST and errno != ENOTDIR and errno != ENOTEMPTY:
            break
        snprintf(c_bad, PATH_BYTES, "%s.bad.%d", c_path, number)
    return errno


cdef int newfile_make(const char *c_temporary, const char *c_path, const char *c_data, int64_t length,
                      bint syncs) noexcept nogil:
    cdef int64_t written
    cdef int error, fd = newfile_open(c_temporary)
    if fd < 0:
        return fd
    error = io_write(fd, c_data, length, 0, &written)
    if error == 0 and syncs:
        error = io_sync_data(fd)
    if error == 0:
        error = newfile_place(c_temporary, c_path)
    if error:
        close(fd)
        unlink(c_temporary)
        return -error
    return fd
