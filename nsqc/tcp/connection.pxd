# One client connection as the loop sees it: bytes in, commands run, replies out, timers, the end.
#
# All connections read into one area. What belongs to an unfinished command is kept in inbuf and, if it is not large,
# put right before the area's next bytes, so that a command is parsed where it lies:
#
#   | headroom, up to HEADROOM bytes of a kept command | RECEIVE_BYTES that the loop reads into |

from libc.stdint cimport int64_t
from nsqc.broker.broker cimport Broker
from nsqc.broker.seams cimport Publisher
from nsqc.store.backlog cimport Commit
from nsqc.store.slices cimport Slicer
from nsqc.tcp.largebody cimport LargeBody
from nsqc.tcp.outbox cimport Outbox, Turn
from nsqc.tcp.session cimport Limits, Session
from nsqc.wire.codec cimport Codec
from nsqc.wire.inbuf cimport InBuf
from nsqc.wire.parser cimport Parser


cdef class Hub:
    # What the connections of one daemon share.
    cdef readonly Broker broker
    cdef readonly Turn turn
    cdef readonly Limits limits
    cdef readonly object settings
    cdef readonly object log
    cdef readonly object loop
    cdef public object authority        # nsqc.peers.auth.Authority; None where clients need not authenticate
    cdef readonly object connection_limits  # nsqc.net.limits.ConnectionLimits
    cdef readonly object tls            # nsqc.net.tls.Certificates; None: TLS is not offered
    cdef readonly dict connections      # connection to None, in order of arrival; all that are open
    cdef Slicer slicer
    cdef char *area                     # owned
    cdef char *c_into                   # where the next read goes: into the area, or into a message that is coming
    cdef Py_ssize_t room                # bytes there that it may use
    # Errors of clients, which can be many, since the last line about them.
    cdef int64_t error_lines_ns         # monotonic: when the count below begins anew
    cdef int64_t error_lines
    cdef int64_t errors_unsaid

    cdef void complain(self, Connection connection, bytes text) noexcept


cdef enum Held:             # why nothing is read for now
    HELD_UNREAD = 1         # the client leaves its output unread
    HELD_DECODING = 2       # what was read is not decoded yet
    HELD_UPGRADE = 4        # IDENTIFY has asked for TLS or compression, and that is not in place
    HELD_WAITING = 8        # a command waits for go_on(); it and all behind it is kept in inbuf
    HELD_SLICE = 16         # what is in inbuf goes on in the next slice
    HELD_BEHIND = 32        # the topic that was published to has to catch up first; publish_on() follows
    HELD_INPUT = 56         # any of the last three: commands in inbuf are not run


cdef class Mark:
    # A place in the output that must not leave before a commit has ended.
    cdef Commit commit
    cdef int64_t serial
    cdef int64_t at                     # in all output
    cdef int kind                       # of the command that is answered there
    cdef bint settled
    cdef int error                      # errno of the commit


cdef class Connection(Publisher):
    cdef Hub hub
    cdef object transport
    cdef Outbox outbox
    cdef Session session                # None until the magic has come
    cdef Parser parser
    cdef InBuf inbuf                    # owned
    cdef readonly object address
    cdef object host                    # what the connection limits count it under; None: it was not let in
    cdef bint closing                   # nothing more is read or run
    cdef bint detour                    # input does not go straight to the parser: closing, upgrade, or codec
    cdef Codec codec                    # None: not compressed
    cdef bint shaking_hands             # the transport belongs to TLS, which has nothing for us yet
    cdef object upgrade                 # what IDENTIFY has agreed on, until it is in place: nsqc.tcp.identify.Upgrade
    cdef int held                       # bits of Held
    cdef int64_t heard_ns               # monotonic: when bytes came last
    cdef int64_t made_ns                # monotonic: when the client has come
    cdef int64_t began_ns               # monotonic: when the unfinished command, or the wait for the magic, began
    cdef int64_t blocked_ns             # monotonic: since when the socket has taken nothing; 0: it does
    cdef object heartbeat_timer
    cdef int64_t beat_ns                # monotonic: when the next heartbeat is due; 0: never
    cdef object stall_timer
    cdef object marks                   # deque of Mark, in the order of the output
    cdef bint ending                    # closes once all marks are settled
    cdef bint suspect                   # silent for too long, unless the next read shows otherwise
    cdef Py_ssize_t batch_at            # where an unfinished multi-publish goes on, from its line; 0: there is none
    cdef LargeBody large                # None until one has come
    cdef bint gathering                 # into large; the parser waits
    cdef bint direct                    # the read under way goes into large
    cdef bint arrived                   # it was the last of a message
    cdef bint gathered                  # large goes on in the next slice: an unfinished multi-publish

    cdef int _take(self, Py_ssize_t length) except -1       # bytes that lie in the area
    cdef bint _may_read_direct(self) noexcept
    cdef int _take_direct(self, Py_ssize_t length) except -1
    cdef int _gather_again(self) except -1
    cdef int _take_detour(self, Py_ssize_t length) except -1
    cdef Py_ssize_t _begin_gathering(self, const char *c_at, Py_ssize_t have) except -1
    cdef int _cut_short(self) except -1
    cdef int _decode(self) except -1
    cdef void _hold(self, int why) noexcept
    cdef void _release(self, int why) noexcept
    cdef void _begin_upgrade(self) noexcept
    cdef Py_ssize_t _consume(self, const char *c_from, Py_ssize_t length) except -1
    cdef Py_ssize_t _greet(self, const char *c_from, Py_ssize_t length) except -1
    cdef int _keep(self, const char *c_from, Py_ssize_t used, Py_ssize_t kept, Py_ssize_t length) except -1
    cdef void _after_input(self) noexcept
    cdef bint _act(self, int outcome) except -1     # False: the connection ends
    cdef int _run_kept(self) except -1
    cdef int _mark(self, Commit commit) except -1
    cdef void _settle_marks(self) noexcept
    cdef Py_ssize_t _go_on_batch(self, const char *c_from) except -1
    cdef bint _batch_is_open(self) noexcept
    cdef void _publish_rest(self) noexcept
    cdef int _hold_slice(self) except -1
    cdef bint _is_alive(self, int64_t now, int64_t interval_ns) except -1
    cdef void _watch_stall(self) noexcept
    cdef void _end(self) noexcept
    cdef void _say(self, int frame_type, bytes text) noexcept
