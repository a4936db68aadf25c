"""Output: frames collected for each connection, written once a loop iteration. See the .pxd for the flush rules."""

cimport cython
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint16_t
from libc.string cimport memmove

from nsqc.store.clock cimport monotonic_ns
from nsqc.store.message cimport Message
from nsqc.store.slices cimport ITERATION_NS
from nsqc.wire.framer cimport frame_bytes, frame_message, sendbuf_clear, sendbuf_free

cdef extern from "<sys/socket.h>" nogil:
    ssize_t send(int fd, const void *buf, size_t length, int flags)
    int MSG_DONTWAIT
    int MSG_NOSIGNAL

cdef enum:
    # A system call costs as much as copying tens of KiB, so a full buffer is worth sending early only from here on.
    FLUSH_BYTES = 131072
    OUTBOXES = 16       # sent between two looks at the clock


@cython.final
cdef class Turn:
    """One loop iteration after the other, as far as connections are concerned."""

    def __init__(self, loop, Slicer slicer not None, bint waits):
        self.loop = loop
        self.slicer = slicer
        self.due = []
        self.waits = waits

    cdef void schedule(self) noexcept:
        if not self.scheduled:
            self.loop.call_soon(self.end)
            self.scheduled = True

    cdef void begin_reading(self, int64_t now_ns) noexcept:
        if not self.reading:
            self.reading = True
            self.read_until_ns = now_ns + ITERATION_NS
            self.schedule()
        self.slicer.deadline_ns = self.read_until_ns

    cdef bint read_enough(self) noexcept:
        return self.reading and monotonic_ns() >= self.read_until_ns

    def end(self):
        """Called by the loop once in an iteration in which something was collected."""
        cdef Outbox outbox
        cdef list due = self.due
        cdef Py_ssize_t count = len(due), at = 0
        cdef int64_t until_ns = monotonic_ns() + ITERATION_NS
        self.scheduled = self.reading = False
        self.due = []
        while at < count:
            outbox = due[at]
            outbox.due = False
            outbox._send()
            at += 1
            if at % OUTBOXES == 0 and at < count and monotonic_ns() >= until_ns:
                self.due = due[at:] + self.due
                self.schedule()
                return


@cython.final
cdef class Outbox:
    """The output of one connection."""

    def __init__(self):
        raise TypeError("Outbox objects are made by Outbox.new()")

    @staticmethod
    cdef Outbox new(Turn turn, object transport, int fd, Py_ssize_t size, int64_t timeout_ms):
        cdef Outbox self = Outbox.__new__(Outbox)
        self.turn = turn
        self.transport = transport
        self.fd = fd
        self.size = size
        self.timeout_ms = timeout_ms
        self.hold = -1
        return self

    def __dealloc__(self):
        sendbuf_free(&self.buf)

    cdef void reply(self, int32_t frame_type, const char *c_data, Py_ssize_t length) noexcept:
        if self.closed:
            return
        if frame_bytes(&self.buf, frame_type, c_data, length) < 0:
            self.transport.abort()
            return
        self._due()

    cdef void message(self, Message *message, uint16_t attempts, bint room) noexcept:
        if self.closed:
            return
        if frame_message(&self.buf, message.timestamp_ns, attempts, message.id, message.body, message.size) < 0:
            self.transport.abort()
            return
        if self.buf.length >= self.size and (self.buf.length >= FLUSH_BYTES or self.turn.waits):
            self.flush()
        elif self.turn.waits and room and self.timeout_ms > 0:
            self._wait()
        else:
            self._due()

    cdef void _due(self) noexcept:
        if not self.due:
            self.due = True
            self.turn.due.append(self)
            self.turn.schedule()

    cdef void _wait(self) noexcept:
        if self.timer is None and not self.due:
            self.timer = self.turn.loop.call_later(self.timeout_ms / 1000.0, self.timed_out)

    def timed_out(self):
        """The output buffer timeout has passed since the first message that waits."""
        self.timer = None
        self.flush()

    cdef void flush(self) noexcept:
        self._send()

    cdef void _send(self) noexcept:
        cdef Py_ssize_t length = self.buf.length
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if self.hold >= 0:
            length = <Py_ssize_t> (self.hold - self.sent_bytes)
        if length == 0 or self.blocked or self.closed:
            return
        self.sent_bytes += length
        if self.codec is not None:
            self._send_encoded(length)
        else:
            self._put(self.buf.data, length)
        if length == self.buf.length:
            sendbuf_clear(&self.buf)
        else:
            self.buf.length -= length
            memmove(self.buf.data, self.buf.data + length, <size_t> self.buf.length)

    cdef int _put(self, const char *c_data, Py_ssize_t length) except -1:
        """To the socket, or to the transport what the socket does not take."""
        cdef ssize_t sent = 0
        if self.fd >= 0:
            sent = send(self.fd, c_data, <size_t> length, MSG_DONTWAIT | MSG_NOSIGNAL)
            if sent < 0:
                if errno != EAGAIN and errno != EINTR:
                    self.closed = True
                    self.transport.abort()
                    return 0
                sent = 0
        if sent < length:
            # The transport keeps the rest and calls pause_writing, which blocks this outbox.
            self.transport.write(c_data[sent:length])
        return 0

    cdef void _send_encoded(self, Py_ssize_t length) noexcept:
        """One block of compressed output for a flush, so the client can read all of it."""
        try:
            data = self.codec.encode(self.buf.data, length)
            self._put(data, len(data))
        except BaseException:
            # What the client misses cannot be sent again, so it must not wait for it.
            self.closed = True
            self.transport.abort()

    cdef void unblock(self) noexcept:
        self.blocked = False
        if self.buf.length:
            self._due()

    cdef void unhold(self) noexcept:
        if self.buf.length and not self.closed:
            self._due()

    cdef void close(self) noexcept:
        """No more output; what was collected leaves with the transport's own close()."""
        if not self.closed:
            if self.blocked:
                # Behind what the transport keeps already.
                self.fd = -1
                self.blocked = False
            self._send()
            self.closed = True
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
