# The parts of a connection, its deadlines, its replies that wait for the disk, and its end. connection.pyx handles its
# input.

from libc.stdint cimport int64_t
from nsqc.tcp.heartbeat cimport Heartbeat
from nsqc.tcp.hub cimport Hub
from nsqc.tcp.intake cimport Intake
from nsqc.tcp.link cimport Link
from nsqc.tcp.marks cimport Marks
from nsqc.tcp.outbox cimport Outbox
from nsqc.tcp.session cimport Session
from nsqc.tcp.upgrade cimport Upgrade


cdef class ConnectionState(Link):
    cdef Hub hub
    cdef Intake intake
    cdef int fd                         # of its socket
    cdef Outbox outbox
    cdef Marks marks
    cdef readonly Session session       # None until the magic has arrived
    cdef Heartbeat heartbeat            # likewise
    cdef Upgrade upgrade                # None: none is running
    cdef readonly object address
    cdef object host                    # key for the connection limits; None: not admitted
    cdef bint spoke                     # bytes have arrived: not just a probe
    cdef int64_t made_ns                # monotonic: when the client connected
    cdef int64_t began_ns               # monotonic: start of the incomplete command, or of the wait for the magic
    cdef object stall_timer
    cdef object pace                    # nsqc.net.pace.Pace; None until the client creates a topic or channel
    cdef object pace_timer              # ends a wait for --max-create-rate
    cdef bint ending                    # closes once all marks have settled

    cdef bint act_on(self, int outcome) except -1   # the Outcome of a command; False: do not run the next one now
    cdef void _say(self, int frame_type, bytes text) noexcept
    cdef bint _is_shaking_hands(self) noexcept
    cdef bint _batch_is_open(self) noexcept
    cdef int _publish_rest(self) noexcept
    cdef bint _batch_waits(self) noexcept
    cdef void _settle_marks(self) noexcept
    cdef void _watch_stall(self) noexcept
    cdef int _cut_short(self) except -1
    cdef void _answer_rest(self) noexcept
