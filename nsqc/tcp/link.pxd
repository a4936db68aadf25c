# A connection, from the view of its parts: the session, the intake and the upgrade hold a Link and call upward through
# it. nsqc.tcp.connection.Connection implements it; the parts know nothing else of that class.

from nsqc.store.seams cimport LoopWork


cdef class Link(LoopWork):
    # Runs the commands in these bytes; returns the number of bytes used.
    cdef Py_ssize_t consume(self, const char *c_from, Py_ssize_t length) except -1
    cdef void after_input(self) noexcept                    # after commands were run
    cdef int refuse_stream(self, bytes error) except -1     # the codec cannot decode the input
    cdef void input_ended(self) noexcept                    # the client sends no more
    cdef void resume(self) noexcept                         # the answer that a command WAITS for has arrived
    # IDENTIFY has set session.heartbeat_ms and, if first, pace_ms.
    cdef int heartbeats_agreed(self, bint first) except -1
    cdef void say_ok(self) noexcept
    cdef void upgraded(self) noexcept                       # the agreed TLS and compression are in place
    cdef void end(self) noexcept                            # closes after sending the collected output
    cdef void fail(self, error) noexcept                    # an exception left the connection in an unknown state
    cdef void lost(self, error) noexcept                    # the transport is gone
