# A client's connection: the protocol of the loop, deadlines, the end.

from libc.stdint cimport int64_t

from nsqc.tcp.intake cimport Heartbeat, Hub, Intake, Upgrade
from nsqc.tcp.outbox cimport Marks, Outbox
from nsqc.tcp.session cimport Link, Session


# ====================================================================== connection
# One client connection as the loop sees it. Its parts: intake (bytes in), parser, session (the client's state), outbox
# (bytes out), marks (replies that wait for the disk), heartbeat, and a running upgrade. This class runs commands and
# acts on their outcomes.

cdef class Connection(Link):
    cdef Hub hub
    cdef Intake intake
    cdef int fd                         # of its socket
    cdef Outbox outbox
    cdef Marks marks
    cdef readonly Session session       # None until the magic has arrived
    cdef Heartbeat heartbeat            # likewise
    cdef Upgrade upgrade                # None: none is running
    cdef readonly str address
    cdef object host                    # key for the connection limits; None: not admitted
    cdef bint spoke                     # bytes have arrived: not just a probe
    cdef int64_t made_ns                # monotonic: when the client connected
    cdef int64_t began_ns               # monotonic: start of the incomplete command, or of the wait for the magic
    cdef object stall_timer
    cdef object pace                    # nsqc.net.listener.Pace; None until the client creates a topic or channel
    cdef object pace_timer              # ends a wait for --max-create-rate
    cdef bint ending                    # closes once all marks have settled

    cdef bint _act(self, int outcome) except -1   # the Outcome of a command; False: do not run the next one now
    cdef void _say(self, int frame_type, bytes text) noexcept
    cdef bint _is_shaking_hands(self) noexcept
    cdef bint _batch_is_open(self) noexcept
    cdef int _publish_rest(self) noexcept
    cdef bint _batch_waits(self) noexcept
    cdef void _settle_marks(self) noexcept
    cdef void _watch_stall(self) noexcept
    cdef int _cut_short(self) except -1
    cdef void _answer_rest(self) noexcept
    cdef Py_ssize_t _greet(self, const char *c_from, Py_ssize_t length) except -1
    cdef Py_ssize_t _continue_batch(self, const char *c_from) except -1
    cdef int _hold_slice(self) except -1
    cdef bint _may_gather(self) noexcept
    cdef bint _must_wait(self) except -1
