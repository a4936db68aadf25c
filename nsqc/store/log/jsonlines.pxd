# Records of a segment as lines of JSON. lines() is for Python: see the .pyi.

from libc.stdint cimport int64_t


cdef struct Text:
    char *c_data            # owned
    int64_t length, room


# Of a record's line.
cdef int64_t line_bytes(const char *c_record, int64_t length, int64_t offset) noexcept nogil
