# A connection's input between reads: the bytes of one incomplete command.

cdef struct InBuf:
    char *data          # owned; NULL if empty
    Py_ssize_t length   # bytes kept
    Py_ssize_t room     # bytes allocated

cdef int inbuf_append(InBuf *inbuf, const char *c_from, Py_ssize_t length) noexcept nogil   # 0; -1: no memory
cdef void inbuf_drop(InBuf *inbuf, Py_ssize_t length) noexcept nogil                        # the first length bytes
cdef void inbuf_free(InBuf *inbuf) noexcept nogil                                           # all of it
