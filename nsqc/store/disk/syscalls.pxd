# System calls on files: interrupted calls and partial transfers are continued. Results are errno or -errno as noted.
# All may be called on worker threads, without the GIL.

from libc.stdint cimport int64_t

# Writes all bytes at an offset; 0 or errno. written: bytes actually written.
cdef int io_write(int fd, const char *c_from, int64_t length, int64_t at, int64_t *written) noexcept nogil
# Reads up to room bytes at an offset; returns the count, fewer only at the end of the file; or -errno.
cdef int64_t io_read(int fd, char *c_to, int64_t room, int64_t at) noexcept nogil
cdef int io_open(const char *c_path, int flags) noexcept nogil      # descriptor, or -errno
cdef int64_t io_size(int fd) noexcept nogil                         # bytes, or -errno
# The same from the page cache only: -EAGAIN if it lacks some of that data, or if the file system cannot
# tell.
cdef int64_t io_read_cached(int fd, char *c_to, int64_t room, int64_t at) noexcept nogil
# Whether a write at this offset needs no read: for blocks that it fills partially, the page cache has the rest.
# Otherwise the write may wait for a busy disk. Also True if the file system cannot tell.
cdef bint io_write_ready(int fd, int64_t at) noexcept nogil
cdef int io_truncate(int fd, int64_t size) noexcept nogil           # 0 or errno
cdef int io_sync(int fd) noexcept nogil                             # 0 or errno
cdef int io_sync_data(int fd) noexcept nogil                        # fdatasync: 0 or errno
cdef int io_sync_path(const char *c_path, int flags) noexcept nogil     # 0 or errno
cdef int io_rename(const char *c_from, const char *c_to) noexcept nogil     # 0 or errno
cdef int io_unlink(const char *c_path) noexcept nogil               # 0 or errno
