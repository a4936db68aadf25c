# How many objects of each type can be reached, counted a part at a time.

from cpython.ref cimport PyObject


cdef class Census:
    cdef PyObject **stack       # reached, and not followed yet; a reference each
    cdef Py_ssize_t depth
    cdef Py_ssize_t room        # of the stack
    cdef size_t *seen           # an open hash of addresses; 0: free
    cdef size_t mask            # one less than its size, a power of two
    cdef size_t free            # entries that may still be filled
    cdef bint full              # no memory, or more objects than expected: some are left out
    cdef object large           # a dict or a list that is being followed; None: there is none
    cdef Py_ssize_t position    # in it
    cdef readonly dict counts   # by type
    cdef int _follow(self, PyObject *c_object) except -1
    cdef int _follow_large(self) except -1
    cdef void _reach(self, PyObject *c_object) noexcept
