"""Output: frames collected for each connection, written once per loop iteration. See the .pxd for the flush rules."""

cimport cython
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint16_t
from libc.string cimport memset

from nsqc.loop.watch cimport span_over
from nsqc.store.clock cimport monotonic_ns
from nsqc.store.message cimport Message
from nsqc.store.slices cimport ITERATION_NS
from nsqc.tcp.gather cimport gather_bytes, gather_cut, gather_free, gather_message, gather_sent, gather_vector, iovec
from nsqc.wire.framer cimport frame_bytes, frame_message

cdef extern from "<sys/socket.h>" nogil:
    struct msghdr:
        iovec *msg_iov
        size_t msg_iovlen
    ssize_t sendmsg(int fd, const msghdr *message, int flags)
    ssize_t send(int fd, const void *buf, size_t length, int flags)
    int MSG_DONTWAIT
    int MSG_NOSIGNAL

cdef enum:
    # A system call costs as much as copying tens of KiB, so only larger full buffers are worth sending early.
    FLUSH_BYTES = 131072
    OUTBOXES = 16       # sent between two looks at the clock
    SHORT_BYTES = 4096
    LARGE_BODY = 2048   # larger bodies are sent from their messages: one more piece costs as much as copying this
    PIECES = 256        # of one system call
    WAKE_BYTES = 4096   # bytes that the transport gets when the socket is full


@cython.final
cdef class Iteration:
    """The current loop iteration: input for a limited time, output at its end."""

    def __init__(self, loop, Slicer slicer not None, bint waits, CommitSchedule commits not None):
        self.loop = loop
        self.slicer = slicer
        self.commits = commits
        self.due = []
        self.waits = waits

    cdef void schedule(self) noexcept:
        if not self.scheduled:
            self.loop.call_soon(self.end)
            self.scheduled = self.commits.awaited = True

    cdef void begin_reading(self, int64_t now_ns) noexcept:
        if not self.reading:
            self.reading = True
            self.read_until_ns = now_ns + ITERATION_NS
            self.schedule()
        self.slicer.deadline_ns = self.read_until_ns
        self.slicer.look_from(now_ns)

    cdef bint read_enough(self) noexcept:
        return self.reading and monotonic_ns() >= self.read_until_ns

    def end(self):
        """Called by the loop once per iteration with collected output."""
        cdef int64_t began_ns = monotonic_ns()
        self.reading = self.commits.awaited = False
        if self.slicer.unread is not None:
            self.slicer.unread.answered()       # now: deliveries to a consumer must not wait for an answer
        if self.commits.scheduled:
            self.commits.run()  # short writes are answered and delivered with the rest
        self._send_due(monotonic_ns() + ITERATION_NS)
        self.scheduled = False
        if self.due:
            self.schedule()
        span_over(monotonic_ns() - began_ns, b"commits, and output to clients", "")

    cdef void _send_due(self, int64_t until_ns) noexcept:
        """Sends the collected output, as far as time allows: short output first."""
        cdef Outbox outbox
        cdef list due = self.due
        cdef list large = []
        cdef Py_ssize_t count = len(due), at = 0
        if 1 < count <= OUTBOXES:
            for outbox in due:
                if outbox.bytes() > SHORT_BYTES:
                    large.append(outbox)
            if 0 < len(large) < count:
                due = [outbox for outbox in due if outbox.bytes() <= SHORT_BYTES] + large
        self.due = []
        while at < count:
            outbox = due[at]
            outbox.due = False
            outbox._send()
            at += 1
            if at % OUTBOXES == 0 and at < count and monotonic_ns() >= until_ns:
                self.due = due[at:] + self.due
                return


@cython.final
cdef class Outbox:
    """The output of one connection."""

    def __init__(self):
        raise TypeError("Outbox objects are made by Outbox.new()")

    @staticmethod
    cdef Outbox new(Iteration iteration, object transport, int fd, Py_ssize_t size, int64_t timeout_ms):
        cdef Outbox self = Outbox.__new__(Outbox)
        self.iteration = iteration
        self.transport = transport
        self.fd = fd
        self.size = size
        self.timeout_ms = timeout_ms
        self.hold = -1
        return self

    def __dealloc__(self):
        gather_free(&self.gather)

    cdef Py_ssize_t bytes(self) noexcept:
        return gather_bytes(&self.gather)

    cdef Py_ssize_t unread_bytes(self) noexcept:
        return gather_bytes(&self.gather) - self.refused

    cdef int64_t end(self) noexcept:
        return self.sent_bytes + gather_bytes(&self.gather)

    cdef void cut(self, int64_t at) noexcept:
        gather_cut(&self.gather, <Py_ssize_t> (at - self.sent_bytes))

    cdef void reply(self, int32_t frame_type, const char *c_data, Py_ssize_t length) noexcept:
        if self.closed:
            return
        if frame_bytes(&self.gather.buf, frame_type, c_data, length) < 0:
            self.transport.abort()
            return
        self._due()

    cdef void message(self, Message *message, uint16_t attempts, bint room) noexcept:
        cdef int added
        cdef Py_ssize_t bytes
        if self.closed:
            return
        # A codec needs all bytes of a flush in one piece, and TLS copies them anyway.
        if message.size >= LARGE_BODY and self.fd >= 0 and self.codec is None:
            added = gather_message(&self.gather, message, attempts)
        else:
            added = frame_message(&self.gather.buf, message.timestamp_ns, attempts, message.id, message.body,
                                  message.size)
        if added < 0:
            self.transport.abort()
            return
        bytes = gather_bytes(&self.gather)
        if bytes >= self.size and (bytes >= FLUSH_BYTES or self.iteration.waits):
            self.flush()
        elif self.iteration.waits and room and self.timeout_ms > 0:
            self._wait()
        else:
            self._due()

    cdef void _due(self) noexcept:
        # Released output is appended after deliveries from the same commit: consumers wait longer.
        if not self.due and self.hold != self.sent_bytes:
            self.due = True
            self.iteration.due.append(self)
            self.iteration.schedule()

    cdef void _wait(self) noexcept:
        if self.timer is None and not self.due:
            self.timer = self.iteration.loop.call_later(self.timeout_ms / 1000.0, self.timed_out)

    def timed_out(self):
        """The output buffer timeout has passed since the first waiting message."""
        self.timer = None
        self.flush()

    cdef void flush(self) noexcept:
        self._send()

    cdef void _send(self) noexcept:
        cdef Py_ssize_t length = gather_bytes(&self.gather)
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if self.hold >= 0:
            length = <Py_ssize_t> (self.hold - self.sent_bytes)
        if length == 0 or self.blocked or self.closed:
            return
        if self.codec is not None:
            self._send_encoded(length)
        else:
            self._send_plain(length)
        self.refused = gather_bytes(&self.gather)

    cdef void _send_plain(self, Py_ssize_t length) noexcept:
        """Sends to the socket. When it is full, a piece goes to the transport, which reports when there is room."""
        cdef Py_ssize_t sent
        cdef iovec piece
        while length > 0 and not self.blocked and not self.closed:
            sent = self._send_vector(length) if self.fd >= 0 else 0
            if sent == 0 and not self.closed:
                gather_vector(&self.gather, length, &piece, 1, &sent)
                if self.fd >= 0:
                    sent = min(sent, <Py_ssize_t> WAKE_BYTES)
                try:
                    self.transport.write((<char *> piece.iov_base)[:sent])
                except BaseException:
                    self._fail()
            self.sent_bytes += sent
            length -= sent
            gather_sent(&self.gather, sent)

    cdef Py_ssize_t _send_vector(self, Py_ssize_t length) noexcept:
        """Count of the first length bytes that the socket has accepted; 0: none, or the connection has failed."""
        cdef iovec[PIECES] pieces
        cdef msghdr header
        cdef Py_ssize_t bytes
        cdef ssize_t sent
        memset(&header, 0, sizeof(header))
        header.msg_iov = pieces
        header.msg_iovlen = <size_t> gather_vector(&self.gather, length, pieces, PIECES, &bytes)
        sent = sendmsg(self.fd, &header, MSG_DONTWAIT | MSG_NOSIGNAL)
        if sent < 0:
            if errno != EAGAIN and errno != EINTR:
                self._fail()
            return 0
        return sent

    cdef void _send_encoded(self, Py_ssize_t length) noexcept:
        """Sends one compressed block per flush, so the client can decode all of it."""
        cdef const char *c_data
        cdef ssize_t sent = 0
        try:
            data = self.codec.encode(self.gather.buf.data + self.gather.buf_at, length)
            self.sent_bytes += length
            gather_sent(&self.gather, length)
            c_data = data
            if self.fd >= 0:
                sent = send(self.fd, c_data, <size_t> len(data), MSG_DONTWAIT | MSG_NOSIGNAL)
                if sent < 0:
                    if errno != EAGAIN and errno != EINTR:
                        self._fail()
                        return
                    sent = 0
            if sent < len(data):
                # The transport keeps the rest and calls pause_writing, which blocks this outbox.
                self.transport.write(data[sent:] if sent else data)
        except BaseException:
            self._fail()

    cdef void _fail(self) noexcept:
        """Closes the connection: lost output cannot be sent again, and the client would wait for it forever."""
        self.closed = True
        self.transport.abort()

    cdef void unblock(self) noexcept:
        cdef Py_ssize_t before = gather_bytes(&self.gather), refused = self.refused
        self.blocked = False
        self._send()
        if self.blocked:
            # That read did not include input received meanwhile.
            self.refused = max(<Py_ssize_t> 0, refused - (before - gather_bytes(&self.gather)))

    cdef void unhold(self) noexcept:
        if gather_bytes(&self.gather) and not self.closed:
            self._due()

    cdef void close(self) noexcept:
        """Ends output; the transport's own close() sends the collected bytes."""
        if not self.closed:
            self._send()
            if self.blocked:
                # After the bytes that the transport already has.
                self.fd = -1
                self.blocked = False
                self._send()
            self.closed = True
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
