"""Heartbeats: sent to a connected client, and expected from it; anything it sends counts as one."""

cimport cython
from libc.stdint cimport int64_t

from nsqc.store.clock cimport monotonic_ns
from nsqc.tcp.hub cimport Hub
from nsqc.tcp.intake cimport HELD_INPUT, Intake
from nsqc.tcp.outbox cimport Outbox
from nsqc.tcp.session cimport Session
from nsqc.wire.const cimport FRAME_RESPONSE

cdef enum:
    NS_PER_MS = 1000000
    EARLY_NS = 1000000          # a timer of the loop may fire this much early
    SILENCE_GRACE_NS = 5000000  # tolerance before two full intervals of silence
    SUSPECT_MS = 50             # extra time for a client that seems silent, as the loop may have been busy

cdef bytes HEARTBEAT = b"_heartbeat_"


@cython.final
cdef class Heartbeat:
    """The heartbeats of one client."""

    @staticmethod
    cdef Heartbeat new(Hub hub, Session session, Outbox outbox, Intake intake):
        cdef Heartbeat self = Heartbeat.__new__(Heartbeat)
        self.hub = hub
        self.session = session
        self.outbox = outbox
        self.intake = intake
        return self

    cdef int begin(self) except -1:
        """The pace is the default before IDENTIFY, then that of the first one."""
        cdef int64_t pace_ms = self.session.pace_ms
        self.beat_ns = monotonic_ns() + pace_ms * NS_PER_MS if pace_ms > 0 else 0
        return self.watch()

    cdef int watch(self) except -1:
        """Has beat() called when a heartbeat is due, or the client may have timed out."""
        cdef int64_t now = monotonic_ns()
        cdef int64_t due_ns = now + self.session.heartbeat_ms * NS_PER_MS
        self.stop()
        if self.session.heartbeat_ms <= 0:
            due_ns = self.beat_ns
        elif self.beat_ns:
            due_ns = min(due_ns, self.beat_ns)
        if due_ns:
            self.timer = self.hub.loop.call_later(max(0, due_ns - now) / 1e9, self.beat)
        return 0

    def beat(self):
        """A heartbeat is due, or the client has neither sent nor accepted anything for too long."""
        cdef int64_t now = monotonic_ns()
        cdef int64_t interval_ns = self.session.heartbeat_ms * NS_PER_MS
        self.timer = None
        if self.intake.closed:
            return
        # A handshake has its own deadline.
        if not self.intake.upgrading and not self._is_alive(now, interval_ns):
            return
        if self.beat_ns and now >= self.beat_ns - EARLY_NS:
            self.beat_ns = now + self.session.pace_ms * NS_PER_MS
            if not self.intake.upgrading:
                self.outbox.reply(FRAME_RESPONSE, HEARTBEAT, len(HEARTBEAT))
        self.watch()

    cdef bint _is_alive(self, int64_t now, int64_t interval_ns) except -1:
        """Whether the client is heard and accepts output; if not, closes it, or checks once more."""
        cdef bint silent = (not self.intake.held & HELD_INPUT
                            and now - self.intake.heard_ns >= 2 * interval_ns - SILENCE_GRACE_NS)
        if interval_ns <= 0:
            return True
        if silent and not self.suspect:
            # Its bytes may be unread because the loop was busy: read once more before closing it.
            self.suspect = True
            self.timer = self.hub.loop.call_later(SUSPECT_MS / 1000.0, self.beat)
            return False
        self.suspect = False
        if silent:
            self.hub.log.error("client(%s) - silent for two heartbeats", self.session.address)
        elif self.blocked_ns and now - self.blocked_ns >= interval_ns:
            self.hub.log.error("client(%s) - takes nothing from its socket", self.session.address)
        else:
            return True
        self.outbox.transport.abort()
        return False

    cdef void stop(self) noexcept:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
