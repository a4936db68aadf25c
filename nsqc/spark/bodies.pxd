# Message bodies in an Arrow column of binary or text, and the commands that publish them.
#
# Row r of the column is c_data[offsets[first + r] .. offsets[first + r + 1]]; it is null if the bit first + r of
# the validity bitmap, counted from the lowest, is 0. A slice has first > 0 and shares the buffers of the whole column.

from libc.stdint cimport int64_t

cdef class Bodies:
    cdef const unsigned char[::1] validity, data    # validity is empty if no row is null
    cdef const int[::1] offsets                     # only one of the two is used
    cdef const long long[::1] wide_offsets
    cdef bint wide
    cdef Py_ssize_t first           # of the column in its buffers
    cdef readonly Py_ssize_t rows

    cdef int64_t begin(self, Py_ssize_t row) noexcept
    cdef int64_t size(self, Py_ssize_t row) noexcept
    cdef bint is_null(self, Py_ssize_t row) noexcept
    cdef char *put(self, char *c_to, Py_ssize_t row) noexcept
