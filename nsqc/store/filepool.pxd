# A bounded pool of file descriptors for all disk queues of a daemon.
#
# A queue has a PoolFile for reading and one for writing. The pool may close either at any call of open(), so a
# descriptor is asked for before each use and never kept.

from libc.stdint cimport int64_t


cdef struct PoolFile:
    int fd                  # -1: closed
    int64_t number          # of the data file it is open on
    PoolFile *newer         # neighbours by last use, while it is open
    PoolFile *older


cdef class FilePool:
    cdef readonly int64_t size          # descriptors that may be open
    cdef readonly int64_t open_files    # descriptors that are open
    cdef PoolFile *newest
    cdef PoolFile *oldest

    # The descriptor of an open file on that number, else opens the path; -errno where it cannot be opened.
    cdef int open(self, PoolFile *file, int64_t number, const char *c_path, int flags) noexcept
    cdef void close(self, PoolFile *file) noexcept      # also where it is closed already
    cdef void _link(self, PoolFile *file) noexcept
    cdef void _unlink(self, PoolFile *file) noexcept
