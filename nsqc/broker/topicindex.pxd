# All topics of one daemon, by name.

from libc.stdint cimport uint32_t
from cpython.object cimport PyObject
from nsqc.broker.seams cimport TopicOwner
from nsqc.broker.topic cimport Topic

cdef struct NameSlot:
    uint32_t hash
    PyObject *topic         # borrowed from TopicIndex.topics; NULL: free


cdef class TopicIndex(TopicOwner):
    cdef readonly dict topics           # by name; owns them
    cdef NameSlot *slots                # owned; finds a topic without a Python object for its name
    cdef uint32_t mask

    cdef Topic find(self, const char *c_name, Py_ssize_t length)        # None: no such topic
    cdef int add(self, Topic topic) except -1
    cdef int remove(self, Topic topic) except -1
    cdef int _index(self) except -1
    cdef void _enter(self, Topic topic) noexcept
    cdef void _leave(self, Topic topic) noexcept
