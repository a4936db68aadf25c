# Descriptors of segments and journals that logs keep open from one use to the next. They are counted on all threads;
# while there are too many, each is closed after its use.

from libc.stdint cimport int64_t

cdef void count_open(int64_t count) noexcept nogil
cdef bint too_many_open() noexcept nogil
cdef void close_counted(int *fd) noexcept nogil     # unless it is closed; it is -1 then
