"""Output: frames collected for each connection, written once a turn. See the .pxd for the flush rules."""

cimport cython
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint16_t

from nsqc.store.message cimport Message
from nsqc.wire.framer cimport frame_bytes, frame_message, sendbuf_clear, sendbuf_free

cdef extern from "<sys/socket.h>" nogil:
    ssize_t send(int fd, const void *buf, size_t length, int flags)
    int MSG_DONTWAIT
    int MSG_NOSIGNAL

cdef enum:
    # A system call costs as much as copying tens of KiB, so a full buffer is worth sending early only from here on.
    FLUSH_BYTES = 131072


@cython.final
cdef class Turn:
    """The end of a turn of the loop: first the disk commit, then every outbox that has something."""

    def __init__(self, loop, CommitSet commits not None, bint waits):
        self.loop = loop
        self.commits = commits
        self.due = []
        self.marked = []
        self.waits = waits
        commits.after = self.committed

    cdef void schedule(self) noexcept:
        if not self.scheduled:
            self.scheduled = True
            self.loop.call_soon(self.end)

    cdef int settle(self) except -1:
        if not self.commits.is_clean():
            self.commits.commit()
        return 0

    def committed(self, failed):
        """After a commit: replies that depended on it stand, or are replaced by an error."""
        cdef list marked = self.marked
        if marked:
            self.marked = []
            for connection in marked:
                connection.settle_mark(failed)

    def end(self):
        """Called by the loop once a turn in which something was collected."""
        cdef Outbox outbox
        cdef list due
        self.scheduled = False
        self.settle()
        due = self.due
        self.due = []
        for outbox in due:
            outbox.due = False
            outbox._send()


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
            self._hold()
        else:
            self._due()

    cdef void _due(self) noexcept:
        if not self.due:
            self.due = True
            self.turn.due.append(self)
            self.turn.schedule()

    cdef void _hold(self) noexcept:
        if self.timer is None and not self.due:
            self.timer = self.turn.loop.call_later(self.timeout_ms / 1000.0, self.timed_out)

    def timed_out(self):
        """The output buffer timeout has passed since the first message that waits."""
        self.timer = None
        self.flush()

    cdef void flush(self) noexcept:
        # What is in the buffer may acknowledge what is not on disk yet.
        self.turn.settle()
        self._send()

    cdef void _send(self) noexcept:
        cdef Py_ssize_t length = self.buf.length
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if length == 0 or self.blocked or self.closed:
            return
        self.sent_bytes += length
        if self.codec is not None:
            self._send_encoded()
        else:
            self._put(self.buf.data, length)
        sendbuf_clear(&self.buf)

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

    cdef void _send_encoded(self) noexcept:
        """One block of compressed output for a flush, so the client can read all of it."""
        try:
            data = self.codec.encode(self.buf.data, self.buf.length)
            self._put(data, len(data))
        except MemoryError:
            self.closed = True
            self.transport.abort()

    cdef void unblock(self) noexcept:
        self.blocked = False
        if self.buf.length:
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
