# Lines on their way to a file, in memory that can be written past the page cache.

cdef class Piece:
    cdef char *c_data           # owned, begins with a page
    cdef Py_ssize_t room        # bytes of it
    cdef Py_ssize_t begin       # what is in it
    cdef Py_ssize_t end
