"""Counts the Python objects reachable from some roots by type, one part at a time. See the .pxd.

The garbage collector knows all objects, but lists them in one piece, which takes a tenth of a second in a daemon with
many topics. This asks the objects themselves for their references, as the collector does.
"""

cimport cython
from cpython.dict cimport PyDict_Next
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free, realloc
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

import sys

cdef extern from "Python.h":
    ctypedef int (*visitproc)(PyObject *c_object, void *arg) noexcept
    ctypedef int (*traverseproc)(PyObject *c_object, visitproc visit, void *arg) noexcept
    int PyObject_GC_IsTracked(PyObject *c_object) noexcept
    bint PyObject_IS_GC(PyObject *c_object) noexcept
    ctypedef struct PyTypeObject:
        traverseproc tp_traverse
    PyTypeObject *Py_TYPE(PyObject *c_object) noexcept

cdef enum:
    LOOKS = 64              # objects between two clock reads
    SPARE = 65536           # entries for objects allocated outside Python's accounting
    STACK_ENTRIES = 4096
    LARGE = 1024            # a container with more elements is followed in parts


cdef int visit(PyObject *c_object, void *census) noexcept:
    (<Census> census)._reach(c_object)
    return 0


cdef int64_t now_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t> now.tv_sec * 1000000000 + now.tv_nsec


@cython.final
cdef class Census:
    """One count, starting from some objects."""

    def __init__(self, roots):
        cdef size_t size = 1024
        while size < 2 * (<size_t> sys.getallocatedblocks() + SPARE):
            size *= 2
        self.counts = {}
        self.seen = <size_t *> calloc(size, sizeof(size_t))
        if self.seen is NULL:
            raise MemoryError
        self.mask = size - 1
        self.free = size - size // 4
        for root in roots:
            self._reach(<PyObject *> root)

    def __dealloc__(self):
        self.close()

    def close(self):
        """Frees its memory, which may take milliseconds; call it on a thread, without the GIL."""
        cdef PyObject **stack = self.stack
        cdef size_t *seen = self.seen
        while self.depth:
            self.depth -= 1
            Py_DECREF(<object> stack[self.depth])
        self.large = None
        self.room = 0
        self.free = 0
        self.stack = NULL
        self.seen = NULL
        with nogil:
            free(stack)
            free(seen)

    @property
    def complete(self) -> bool:
        """Whether the count is complete: memory sufficed."""
        return not self.full

    def go_on(self, int64_t for_ns) -> bool:
        """Counts for about this many nanoseconds. Returns whether more remains."""
        cdef int64_t end = now_ns() + for_ns
        cdef int count = 0
        while self.depth or self.large is not None:
            if self.large is not None:
                self._follow_large()
                count = 0
            else:
                self.depth -= 1
                self._follow(self.stack[self.depth])
                count += 1
            if count % LOOKS == 0 and now_ns() >= end:
                break
        return self.depth > 0 or self.large is not None

    cdef int _follow(self, PyObject *c_object) except -1:
        """Counts an object, taking over its reference, and reaches its references."""
        cdef object one = <object> c_object
        Py_DECREF(one)      # `one` holds its own reference
        kind = type(one)
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if (kind is dict or kind is list) and len(one) > LARGE:
            self.large = one
            self.position = 0
        elif Py_TYPE(c_object).tp_traverse is not NULL:
            Py_TYPE(c_object).tp_traverse(c_object, visit, <void *> self)
        return 0

    cdef int _follow_large(self) except -1:
        """Reaches part of a large container's references; the container may change meanwhile."""
        cdef PyObject *c_key
        cdef PyObject *c_value
        cdef int count = 0
        while count < LOOKS:
            if type(self.large) is list:
                if self.position >= len(<list> self.large):
                    self.large = None
                    break
                self._reach(<PyObject *> (<list> self.large)[self.position])
                self.position += 1
            elif PyDict_Next(self.large, &self.position, &c_key, &c_value):
                self._reach(c_key)
                self._reach(c_value)
            else:
                self.large = None
                break
            count += 1
        return 0

    cdef void _reach(self, PyObject *c_object) noexcept:
        """Notes an object to be counted and followed, once. Objects unknown to the collector have no references."""
        cdef size_t address = <size_t> c_object
        cdef size_t at = (address >> 4) * <size_t> 0x9e3779b97f4a7c15 >> 20 & self.mask
        cdef PyObject **stack
        if not PyObject_IS_GC(c_object) or not PyObject_GC_IsTracked(c_object) or c_object == <PyObject *> self:
            return
        while self.seen[at]:
            if self.seen[at] == address:
                return
            at = (at + 1) & self.mask
        if self.depth == self.room:
            stack = <PyObject **> realloc(self.stack, <size_t> (self.room * 2 + STACK_ENTRIES) * sizeof(PyObject *))
            if stack is not NULL:
                self.stack = stack
                self.room = self.room * 2 + STACK_ENTRIES
        if self.depth == self.room or self.free == 0:
            self.full = True
            return
        self.seen[at] = address
        self.free -= 1
        Py_INCREF(<object> c_object)
        self.stack[self.depth] = c_object
        self.depth += 1
