# Counts reachable objects by type, one part at a time.

from cpython.ref cimport PyObject


cdef class Census:
    cdef PyObject **stack       # reached, not followed yet; a reference each
    cdef Py_ssize_t depth
    cdef Py_ssize_t room        # capacity of the stack
    cdef size_t *seen           # an open hash of addresses; 0: free
    cdef size_t mask            # its size - 1; the size is a power of two
    cdef size_t free            # entries that may still be filled
    cdef bint full              # out of memory, or more objects than expected: some are missing
    cdef object large           # a dict or list being followed; None: none
    cdef Py_ssize_t position    # within it
    cdef readonly dict counts   # by type
    cdef int _follow(self, PyObject *c_object) except -1
    cdef int _follow_large(self) except -1
    cdef void _reach(self, PyObject *c_object) noexcept
