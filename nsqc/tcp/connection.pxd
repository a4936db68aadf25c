# One client connection as the loop sees it. Its parts: intake (bytes in), parser, session (the client's state), outbox
# (bytes out), marks (replies that wait for the disk), heartbeat, and a running upgrade. This class runs commands and
# acts on their outcomes; connectionstate.pxd has its fields and its end.

from nsqc.tcp.connectionstate cimport ConnectionState


cdef class Connection(ConnectionState):
    cdef bint _act(self, int outcome) except -1     # act_on() without a virtual call
    cdef Py_ssize_t _greet(self, const char *c_from, Py_ssize_t length) except -1
    cdef Py_ssize_t _continue_batch(self, const char *c_from) except -1
    cdef int _hold_slice(self) except -1
    cdef bint _may_gather(self) noexcept
    cdef bint _must_wait(self) except -1
