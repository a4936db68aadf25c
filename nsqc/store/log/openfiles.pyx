"""Counts the files that logs keep open. See the .pxd."""

from libc.stdint cimport int64_t
from posix.unistd cimport close

cdef enum:
    MOST_OPEN = 1024

cdef extern from *:
    """
    #define NSQC_COUNT(counter, n) __atomic_add_fetch(&(counter), (n), __ATOMIC_RELAXED)
    """
    int64_t NSQC_COUNT(int64_t counter, int64_t n) nogil

cdef int64_t open_files = 0
cdef int64_t most_open = MOST_OPEN


cdef void count_open(int64_t count) noexcept nogil:
    NSQC_COUNT(open_files, count)


cdef bint too_many_open() noexcept nogil:
    return open_files > most_open


cdef void close_counted(int *fd) noexcept nogil:
    if fd[0] >= 0:
        close(fd[0])
        count_open(-1)
    fd[0] = -1


def limit_to(int64_t count):
    """Limits the number of files that logs keep open; MOST_OPEN is the upper bound."""
    global most_open
    most_open = min(count, <int64_t> MOST_OPEN)
