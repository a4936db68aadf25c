# All topics of one daemon, by name; they come and go here.

from libc.stdint cimport int64_t, uint32_t
from cpython.object cimport PyObject
from nsqc.broker.topic cimport Topic
from nsqc.store.backlog cimport Backlog, Commit, CommitSchedule
from nsqc.store.clock cimport Clock
from nsqc.store.guid cimport GuidFactory

cdef struct NameSlot:
    uint32_t hash
    PyObject *topic         # borrowed from Broker.topics; NULL: free


cdef class Broker:
    cdef readonly dict topics           # name to Topic; owns them
    cdef readonly Clock clock
    cdef readonly CommitSchedule commits
    cdef readonly object slicer         # of long work
    cdef readonly GuidFactory guids
    cdef readonly object settings       # nsqc.options.declared.Settings
    cdef readonly object log
    cdef readonly object timers
    cdef readonly list listeners        # callable(event, topic, channel or None); events are the names below
    cdef public bint closing            # a stop has begun: nothing new is made
    cdef public object starter          # callable(topic), where somebody must be asked for channels before it starts
    cdef public object saver            # callable(topic) -> future: nsqd.dat has it
    cdef object disks                   # nsqc.store: opens disk queues; None keeps all in memory
    cdef object write_health                 # nsqc.broker.health.WriteHealth
    cdef NameSlot *slots                # owned; topics by name without a Python object for the name
    cdef uint32_t mask

    cdef Topic find(self, const char *c_name, Py_ssize_t length)        # None where there is none
    cdef int _index(self) except -1
    cdef void _enter(self, Topic topic) noexcept
    cdef void _leave(self, Topic topic) noexcept
    cdef int _tell(self, event, topic, channel) except -1
    cdef Backlog _backlog(self, name, bint ephemeral, bint keeps, Commit commit)
