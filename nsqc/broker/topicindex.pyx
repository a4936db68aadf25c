"""Topics by name. See the .pxd."""

from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject


cdef inline uint32_t hash_name(const char *c_name, Py_ssize_t length) noexcept nogil:
    """FNV-1a; names are short."""
    cdef uint32_t value = 2166136261
    cdef Py_ssize_t at
    for at in range(length):
        value = (value ^ <unsigned char> c_name[at]) * 16777619
    return value


cdef class TopicIndex(TopicOwner):
    """The topics of a daemon by name."""

    def __cinit__(self):
        self.topics = {}
        self._index()

    def __dealloc__(self):
        free(self.slots)

    cdef Topic find(self, const char *c_name, Py_ssize_t length):
        cdef uint32_t value = hash_name(c_name, length)
        cdef uint32_t at = value & self.mask
        cdef Topic topic
        while self.slots[at].topic is not NULL:
            if self.slots[at].hash == value:
                topic = <Topic> self.slots[at].topic
                if (PyBytes_GET_SIZE(topic.name) == length
                        and memcmp(PyBytes_AS_STRING(topic.name), c_name, <size_t> length) == 0):
                    return topic
            at = (at + 1) & self.mask
        return None

    cdef int add(self, Topic topic) except -1:
        self.topics[topic.name] = topic
        if 2 * <uint32_t> len(self.topics) <= self.mask:
            self._enter(topic)
            return 0
        return self._index()

    cdef int _index(self) except -1:
        """Rebuilds the table, with room for twice as many names."""
        cdef uint32_t slots = 64
        cdef NameSlot *c_slots
        while slots < 4 * <uint32_t> len(self.topics):
            slots *= 2
        c_slots = <NameSlot *> calloc(slots, sizeof(NameSlot))
        if c_slots is NULL:
            raise MemoryError
        free(self.slots)
        self.slots = c_slots
        self.mask = slots - 1
        for topic in self.topics.values():
            self._enter(<Topic> topic)
        return 0

    cdef void _enter(self, Topic topic) noexcept:
        cdef uint32_t value = hash_name(PyBytes_AS_STRING(topic.name), PyBytes_GET_SIZE(topic.name))
        cdef uint32_t at = value & self.mask
        while self.slots[at].topic is not NULL:
            at = (at + 1) & self.mask
        self.slots[at].hash = value
        self.slots[at].topic = <PyObject *> topic

    cdef int remove(self, Topic topic) except -1:
        """Moves up later names in the table that could no longer be found."""
        del self.topics[topic.name]
        self._leave(topic)
        return 0

    cdef void _leave(self, Topic topic) noexcept:
        cdef uint32_t hole = hash_name(PyBytes_AS_STRING(topic.name), PyBytes_GET_SIZE(topic.name)) & self.mask
        cdef uint32_t at
        while self.slots[hole].topic != <PyObject *> topic:
            hole = (hole + 1) & self.mask
        at = hole
        while True:
            at = (at + 1) & self.mask
            if self.slots[at].topic is NULL:
                break
            # It may fill the hole if that lies between its preferred slot and its current one.
            if ((at - self.slots[at].hash) & self.mask) >= ((at - hole) & self.mask):
                self.slots[hole] = self.slots[at]
                hole = at
        self.slots[hole].topic = NULL

    def topic(self, bytes name not None):
        """The topic of that name, or None."""
        return self.topics.get(name)
