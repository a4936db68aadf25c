# Descriptors of segments and journals that logs keep open between uses. Counted across threads; above the limit, each
# is closed after use.

from libc.stdint cimport int64_t

cdef void count_open(int64_t count) noexcept nogil
cdef bint too_many_open() noexcept nogil
cdef void close_counted(int *fd) noexcept nogil     # if it is open; sets it to -1
