"""File descriptors that many disk queues share: the least recently used goes when another is needed."""

cimport cython
from libc.errno cimport EMFILE, ENFILE
from libc.stdint cimport int64_t
from posix.unistd cimport close as close_descriptor

from nsqc.store.diskio cimport io_open


@cython.final
cdef class FilePool:
    """Holds at most size descriptors open; at least 2, one for reading and one for writing."""

    def __init__(self, size: int = 256):
        self.size = max(2, size)

    cdef int open(self, PoolFile *file, int64_t number, const char *c_path, int flags) noexcept:
        cdef int fd
        if file.fd >= 0 and file.number == number:
            if self.newest is not file:
                self._unlink(file)
                self._link(file)
            return file.fd
        self.close(file)
        while self.open_files >= self.size:
            self.close(self.oldest)
        fd = io_open(c_path, flags)
        while (fd == -EMFILE or fd == -ENFILE) and self.oldest is not NULL:
            self.close(self.oldest)
            fd = io_open(c_path, flags)
        if fd >= 0:
            file.fd = fd
            file.number = number
            self._link(file)
            self.open_files += 1
        return fd

    cdef void close(self, PoolFile *file) noexcept:
        if file.fd < 0:
            return
        close_descriptor(file.fd)
        file.fd = -1
        self._unlink(file)
        self.open_files -= 1

    cdef void _link(self, PoolFile *file) noexcept:
        file.newer = NULL
        file.older = self.newest
        if self.newest is not NULL:
            self.newest.newer = file
        else:
            self.oldest = file
        self.newest = file

    cdef void _unlink(self, PoolFile *file) noexcept:
        if file.newer is not NULL:
            file.newer.older = file.older
        else:
            self.newest = file.older
        if file.older is not NULL:
            file.older.newer = file.newer
        else:
            self.oldest = file.newer
        file.newer = file.older = NULL
