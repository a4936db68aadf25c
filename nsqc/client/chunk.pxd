# Memory that grows while it is filled, then is lent to Arrow through the buffer protocol without a copy.

cdef class Chunk:
    cdef char *c_data           # owned; NULL while nothing is in it
    cdef Py_ssize_t length      # bytes in use
    cdef Py_ssize_t room        # bytes allocated
    cdef Py_ssize_t lent        # exported buffers; it must not grow while there are any

    cdef char *more(self, Py_ssize_t need) except NULL      # takes need more bytes into use; returns their start
