# Lines to be written to a file, in memory suitable for direct I/O.

cdef class Piece:
    cdef char *c_data           # owned, page-aligned
    cdef Py_ssize_t room        # its size in bytes
    cdef Py_ssize_t begin       # start of the contents
    cdef Py_ssize_t end
