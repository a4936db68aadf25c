"""System calls on files, and the single hook through which tests make a disk fail.

fail() and delay() simulate faults that a test cannot provoke on a real file system: a failing fsync, a slow disk.
"""

import os

from libc.errno cimport EAGAIN, EINTR, EINVAL, EIO, ENOSYS, EOPNOTSUPP, errno
from libc.stdint cimport int64_t
from libc.stdio cimport rename
from posix.fcntl cimport O_CLOEXEC, O_NONBLOCK, O_RDONLY, open
from posix.stat cimport fstat, struct_stat
from posix.time cimport nanosleep, timespec
from posix.unistd cimport close, fdatasync, fsync, ftruncate, pread, pwrite, unlink

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <errno.h>
    #include <sys/uio.h>
    #include <sys/types.h>

    /* From the page cache only: RWF_NOWAIT, unknown to older C libraries. */
    extern ssize_t preadv2(int, const struct iovec *, int, off_t, int);
    static ssize_t nsqc_read_cached(int fd, char *to, size_t room, off_t at) {
        struct iovec part = {to, room};
        return preadv2(fd, &part, 1, at, 8);
    }
    """
    ssize_t nsqc_read_cached(int fd, char *c_to, size_t room, int64_t at) nogil

cdef extern from *:
    """
    /* Takes one of the remaining ones, if any; called concurrently. */
    static int nsqc_take_one(int64_t *left) {
        int64_t now = __atomic_load_n(left, __ATOMIC_RELAXED);
        while (now > 0)
            if (__atomic_compare_exchange_n(left, &now, now - 1, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
                return 1;
        return 0;
    }
    """
    bint nsqc_take_one(int64_t *left) nogil

cdef enum:
    PAGE_BYTES = 4096

cdef enum Call:
    READ
    WRITE
    SYNC
    RENAME

cdef struct Fault:
    int error           # errno to fail with
    int64_t skip        # calls that still succeed
    int64_t times       # calls that fail after those

cdef Fault[4] faults
cdef int64_t[4] delays      # nanoseconds
cdef dict CALLS = {"read": READ, "write": WRITE, "sync": SYNC, "rename": RENAME}


cdef int fault_of(Call call) noexcept nogil:
    """The errno requested by a test; otherwise 0."""
    cdef timespec pause
    if delays[<int> call]:
        pause.tv_sec = delays[<int> call] // 1000000000
        pause.tv_nsec = delays[<int> call] % 1000000000
        nanosleep(&pause, NULL)
    if faults[<int> call].times == 0 or nsqc_take_one(&faults[<int> call].skip):
        return 0
    return faults[<int> call].error if nsqc_take_one(&faults[<int> call].times) else 0


cdef int io_write(int fd, const char *c_from, int64_t length, int64_t at, int64_t *written) noexcept nogil:
    cdef ssize_t done
    cdef int error = fault_of(WRITE)
    written[0] = 0
    if error:
        return error
    while length > 0:
        done = pwrite(fd, c_from, <size_t> length, at)
        if done < 0:
            if errno == EINTR:
                continue
            return errno
        if done == 0:
            return EIO
        c_from += done
        at += done
        length -= done
        written[0] += done
    return 0


cdef int64_t io_read(int fd, char *c_to, int64_t room, int64_t at) noexcept nogil:
    cdef ssize_t got
    cdef int64_t done = 0
    cdef int error = fault_of(READ)
    if error:
        return -error
    while done < room:
        got = pread(fd, c_to + done, <size_t> (room - done), at + done)
        if got < 0:
            if errno == EINTR:
                continue
            return -errno
        if got == 0:
            break
        done += got
    return done


cdef int64_t io_read_cached(int fd, char *c_to, int64_t room, int64_t at) noexcept nogil:
    cdef ssize_t got
    cdef int error
    if delays[<int> READ]:
        return -EAGAIN
    error = fault_of(READ)
    if error:
        return -error
    got = nsqc_read_cached(fd, c_to, <size_t> room, at)
    if got < 0:
        return -EAGAIN if errno in (EINTR, EOPNOTSUPP, ENOSYS, EINVAL) else -errno
    return got if got == room else -EAGAIN


cdef bint io_write_ready(int fd, int64_t at) noexcept nogil:
    cdef char last
    return at % PAGE_BYTES == 0 or nsqc_read_cached(fd, &last, 1, at - 1) >= 0 or errno != EAGAIN


cdef int io_open(const char *c_path, int flags) noexcept nogil:
    cdef int fd
    while True:
        # Non-blocking: something other than a file may have that name.
        fd = open(c_path, flags | O_CLOEXEC | O_NONBLOCK, <int> 0o600)
        if fd >= 0:
            return fd
        if errno != EINTR:
            return -errno


cdef int64_t io_size(int fd) noexcept nogil:
    cdef struct_stat status
    if fstat(fd, &status) < 0:
        return -errno
    return status.st_size


cdef int io_truncate(int fd, int64_t size) noexcept nogil:
    return errno if ftruncate(fd, size) < 0 else 0


cdef int io_sync(int fd) noexcept nogil:
    cdef int error = fault_of(SYNC)
    if error:
        return error
    return errno if fsync(fd) < 0 else 0


cdef int io_sync_data(int fd) noexcept nogil:
    cdef int error = fault_of(SYNC)
    if error:
        return error
    return errno if fdatasync(fd) < 0 else 0


cdef int io_sync_path(const char *c_path, int flags) noexcept nogil:
    cdef int error
    cdef int fd = io_open(c_path, flags)
    if fd < 0:
        return -fd
    error = io_sync(fd)
    close(fd)
    return error


cdef int io_rename(const char *c_from, const char *c_to) noexcept nogil:
    cdef int error = fault_of(RENAME)
    if error:
        return error
    return errno if rename(c_from, c_to) < 0 else 0


cdef int io_unlink(const char *c_path) noexcept nogil:
    return errno if unlink(c_path) < 0 else 0


def sync_file(int descriptor):
    """fsync. Raises OSError."""
    cdef int error
    with nogil:
        error = io_sync(descriptor)
    if error:
        raise OSError(error, os.strerror(error))


def sync_path(path: str):
    """fsync of a file or folder. Raises OSError."""
    cdef bytes name = os.fsencode(path)
    cdef const char *c_path = name
    cdef int error
    with nogil:
        error = io_sync_path(c_path, O_RDONLY)
    if error:
        raise OSError(error, os.strerror(error), path)


def rename_file(path: str, becomes: str):
    """Renames a file within its file system. Raises OSError."""
    cdef bytes name = os.fsencode(path), other = os.fsencode(becomes)
    cdef const char *c_from = name
    cdef const char *c_to = other
    cdef int error
    with nogil:
        error = io_rename(c_from, c_to)
    if error:
        raise OSError(error, os.strerror(error), path)


def delay(call: str, int64_t nanoseconds):
    """Makes calls of disk queues slow, as fail() makes them fail; 0 stops it."""
    delays[<int> CALLS[call]] = nanoseconds


def fail(call: str, error: int, skip: int = 0, times: int = 1):
    """Makes calls of disk queues fail: after skip successful ones, the next times fail with this errno.

    call: "read", "write", "sync" or "rename". times=0 stops it.
    """
    cdef Call number = CALLS[call]
    faults[<int> number].times = 0
    faults[<int> number].error = error
    faults[<int> number].skip = skip
    faults[<int> number].times = times
