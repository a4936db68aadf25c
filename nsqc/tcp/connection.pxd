# One client connection as the loop sees it: bytes in, commands run, replies out, timers, the end.
#
# All connections read into one area. What belongs to an unfinished command is kept in inbuf and, if it is not large,
# put right before the area's next bytes, so that a command is parsed where it lies:
#
#   | headroom, up to HEADROOM bytes of a kept command | RECEIVE_BYTES that the loop reads into |

from libc.stdint cimport int64_t
from nsqc.broker.broker cimport Broker
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
    cdef readonly object gate           # nsqc.gate.Gate
    cdef readonly object tls            # nsqc.tls.Certificates; None: TLS is not offered
    cdef readonly dict connections      # connection to None, in order of arrival; all that are open
    cdef char *area                     # owned


cdef enum Held:             # why nothing is read for now
    HELD_UNREAD = 1         # the client leaves its output unread
    HELD_DECODING = 2       # what was read is not decoded yet
    HELD_UPGRADE = 4        # IDENTIFY has asked for TLS or compression, and that is not in place
    HELD_WAITING = 8        # a command waits for go_on(); it and all behind it is kept in inbuf


cdef class Connection:
    cdef Hub hub
    cdef object transport
    cdef Outbox outbox
    cdef Session session                # None until the magic has come
    cdef Parser parser
    cdef InBuf inbuf                    # owned
    cdef readonly object address
    cdef object host                    # what the gate counts it under; None: it was not let in
    cdef bint closing                   # nothing more is read or run
    cdef bint detour                    # input does not go straight to the parser: closing, upgrade, or codec
    cdef Codec codec                    # None: not compressed
    cdef bint shaking_hands             # the transport belongs to TLS, which has nothing for us yet
    cdef object upgrade                 # what IDENTIFY has agreed on, until it is in place: nsqc.tcp.identify.Upgrade
    cdef int held                       # bits of Held
    cdef int64_t heard_ns               # monotonic: when bytes came last
    cdef int64_t began_ns               # monotonic: when the unfinished command, or the wait for the magic, began
    cdef int64_t blocked_ns             # monotonic: since when the socket has taken nothing; 0: it does
    cdef object heartbeat_timer
    cdef int64_t beat_ns                # monotonic: when the next heartbeat is due; 0: never
    cdef object stall_timer
    # The first reply in the outbox that depends on the turn's commit, and the command that it answers.
    cdef bint marked
    cdef Py_ssize_t mark_at
    cdef int mark_kind
    cdef object mark_topic

    cdef int _take(self, Py_ssize_t length) except -1       # bytes that lie in the area
    cdef int _take_detour(self, Py_ssize_t length) except -1
    cdef int _decode(self) except -1
    cdef void _hold(self, int why) noexcept
    cdef void _release(self, int why) noexcept
    cdef void _begin_upgrade(self) noexcept
    cdef Py_ssize_t _consume(self, const char *c_from, Py_ssize_t length) except -1
    cdef Py_ssize_t _greet(self, const char *c_from, Py_ssize_t length) except -1
    cdef int _keep(self, const char *c_from, Py_ssize_t used, Py_ssize_t kept, Py_ssize_t length) except -1
    cdef void _after_input(self) noexcept
    cdef bint _act(self, int outcome) except -1     # False: the connection ends
    cdef int _go_on(self) except -1
    cdef void _mark(self) noexcept
    cdef bint _is_alive(self, int64_t now, int64_t interval_ns) except -1
    cdef void _watch_stall(self) noexcept
    cdef void _end(self) noexcept
    cdef void _say(self, int frame_type, bytes text) noexcept
