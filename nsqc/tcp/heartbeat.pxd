# Heartbeats of one client, and the check that it is alive: one timer for both.

from libc.stdint cimport int64_t
from nsqc.tcp.hub cimport Hub
from nsqc.tcp.intake cimport Intake
from nsqc.tcp.outbox cimport Outbox
from nsqc.tcp.session cimport Session


cdef class Heartbeat:
    cdef Hub hub
    cdef Session session                # heartbeat_ms and pace_ms
    cdef Outbox outbox
    cdef Intake intake                  # when it was last heard, and whether input is read at all
    cdef object timer
    cdef int64_t beat_ns                # monotonic: next heartbeat; 0: never
    cdef int64_t blocked_ns             # monotonic: since when the socket accepts nothing; 0: it accepts output
    cdef bint suspect                   # silent for too long, unless the next read proves otherwise

    @staticmethod
    cdef Heartbeat new(Hub hub, Session session, Outbox outbox, Intake intake)

    cdef int begin(self) except -1      # session.pace_ms is known
    cdef int watch(self) except -1      # session.heartbeat_ms has changed, or the timer has fired
    cdef void stop(self) noexcept

    cdef bint _is_alive(self, int64_t now, int64_t interval_ns) except -1
