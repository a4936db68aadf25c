# Memory that grows while it is filled and then is lent, as it lies, to Arrow through the buffer protocol.

cdef class Chunk:
    cdef char *c_data           # owned; NULL while nothing is in it
    cdef Py_ssize_t length      # bytes that are filled
    cdef Py_ssize_t room        # bytes allocated
    cdef Py_ssize_t lent        # buffers that point into it: it must not grow meanwhile

    cdef char *more(self, Py_ssize_t need) except NULL      # need bytes more are in use; where they begin
