# Memory that grows while being filled, and is then lent to Arrow through the buffer protocol without a copy.

cdef class Chunk:
    cdef char *c_data           # owned; NULL while empty
    cdef Py_ssize_t length      # bytes in use
    cdef Py_ssize_t room        # bytes allocated
    cdef Py_ssize_t lent        # exported buffers; it must not grow while any exist

    cdef char *more(self, Py_ssize_t need) except NULL      # appends need bytes; returns their start
