# Messages as lines, MPUBs and pieces of files.

from libc.stdint cimport int32_t, int64_t


# ====================================================================== lines
# Formats bodies of a batch as lines of text.


# ====================================================================== cut
# Converts text or bodies to publishing commands.


# ====================================================================== piece
# Lines to be written to a file.

cdef class Piece:
    cdef char *c_data           # owned
    cdef Py_ssize_t room        # its size in bytes
    cdef Py_ssize_t end         # of the contents
