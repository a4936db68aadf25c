"""Bytes to clients: collected per connection, written by the flush rules in the .pxd."""

cimport cython
from collections import deque
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint16_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memmove, memset

from nsqc.loop.uv cimport hooks_close, hooks_open, span_over
from nsqc.store.memory cimport monotonic_ns
from nsqc.store.message cimport Message, message_ref, message_unref
from nsqc.store.work cimport ITERATION_NS, Commit, LoopWork
from nsqc.wire.framer cimport frame_bytes, frame_message, frame_message_head, sendbuf_clear, sendbuf_free


# ====================================================================== gather
# Gathers output to be sent from its places in memory. Knows no socket.

cdef enum:
    FIRST_ROOM = 16     # bodies; the capacity of an empty list


cdef int gather_message(Gather *gather, Message *message, uint16_t attempts) noexcept nogil:
    """A message frame whose body stays in place; -1: no memory, nothing has changed."""
    cdef int room
    cdef Body *c_grown
    if gather.end == gather.room:
        room = max(<int> FIRST_ROOM, 2 * gather.room)
        c_grown = <Body *> realloc(gather.bodies, <size_t> room * sizeof(Body))
        if c_grown is NULL:
            return -1
        gather.bodies = c_grown
        gather.room = room
    if frame_message_head(&gather.buf, message.timestamp_ns, attempts, message.id, message.size) < 0:
        return -1
    message_ref(message)
    gather.bodies[gather.end].message = message
    gather.bodies[gather.end].at = gather.buf.length
    gather.end += 1
    gather.body_bytes += message.size
    return 0


cdef int gather_vector(const Gather *gather, Py_ssize_t limit, iovec *c_pieces, int room,
                       Py_ssize_t *bytes) noexcept nogil:
    """The first unsent bytes, at most limit, in up to room pieces: the number of pieces, and their bytes."""
    cdef Py_ssize_t at = gather.buf_at, skip = gather.body_at, left = limit, size
    cdef int body = gather.first, count = 0
    cdef const Body *c_body
    while left > 0 and count < room:
        c_body = &gather.bodies[body] if body < gather.end else NULL
        size = min(left, (gather.buf.length if c_body is NULL else c_body.at) - at)
        if size > 0:
            c_pieces[count].iov_base = gather.buf.data + at
            at += size
        else:
            if c_body is NULL:
                break
            size = min(left, <Py_ssize_t> c_body.message.size - skip)
            c_pieces[count].iov_base = <void *> (c_body.message.body + skip)
            skip = 0
            body += 1
        c_pieces[count].iov_len = <size_t> size
        left -= size
        count += 1
    bytes[0] = limit - left
    return count


cdef void gather_sent(Gather *gather, Py_ssize_t length) noexcept nogil:
    """The first length bytes were sent."""
    cdef Body *c_body
    cdef Py_ssize_t size
    while length > 0:
        c_body = &gather.bodies[gather.first] if gather.first < gather.end else NULL
        size = min(length, (gather.buf.length if c_body is NULL else c_body.at) - gather.buf_at)
        gather.buf_at += size
        length -= size
        if c_body is NULL or length == 0:
            break
        size = min(length, <Py_ssize_t> c_body.message.size - gather.body_at)
        gather.body_at += size
        gather.body_bytes -= size
        length -= size
        if gather.body_at == c_body.message.size:
            message_unref(c_body.message)
            gather.first += 1
            gather.body_at = 0
    close_up(gather)


cdef void close_up(Gather *gather) noexcept nogil:
    """Moves the rest to the front; otherwise the bytes and the list of bodies would grow without limit."""
    cdef int body
    if gather.first == gather.end:
        gather.first = gather.end = 0
        if gather.room > FIRST_ROOM:
            free(gather.bodies)
            gather.bodies = NULL
            gather.room = 0
    elif gather.first > gather.room // 2:
        gather.end -= gather.first
        memmove(gather.bodies, gather.bodies + gather.first, <size_t> gather.end * sizeof(Body))
        gather.first = 0
    if gather.buf_at == gather.buf.length and gather.first == gather.end:
        gather.buf_at = 0
        sendbuf_clear(&gather.buf)
    elif gather.buf_at > gather.buf.length - gather.buf_at:
        # More is sent than unsent, so each byte moves at most once, however slow the client.
        gather.buf.length -= gather.buf_at
        memmove(gather.buf.data, gather.buf.data + gather.buf_at, <size_t> gather.buf.length)
        for body in range(gather.first, gather.end):
            gather.bodies[body].at -= gather.buf_at
        gather.buf_at = 0


cdef void gather_cut(Gather *gather, Py_ssize_t length) noexcept nogil:
    """Drops all output after length bytes."""
    cdef Py_ssize_t at = gather.buf_at, skip = gather.body_at
    cdef int body = gather.first
    while body < gather.end and gather.bodies[body].at - at < length:
        length -= gather.bodies[body].at - at
        at = gather.bodies[body].at
        length -= <Py_ssize_t> gather.bodies[body].message.size - skip
        skip = 0
        body += 1
    gather.buf.length = at + max(length, <Py_ssize_t> 0)
    while gather.end > body:
        gather.end -= 1
        gather.body_bytes -= gather.bodies[gather.end].message.size
        message_unref(gather.bodies[gather.end].message)


cdef void gather_free(Gather *gather) noexcept nogil:
    while gather.first < gather.end:
        message_unref(gather.bodies[gather.first].message)
        gather.first += 1
    free(gather.bodies)
    sendbuf_free(&gather.buf)
    memset(gather, 0, sizeof(gather[0]))


# ====================================================================== outbox
# Output: frames collected for each connection, written once per loop iteration. See the .pxd for the flush rules.

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


cdef void before_wait(void *state) noexcept nogil:
    if (<EndState *> state).due:
        end_before_wait(<EndState *> state)


cdef void after_wait(void *state) noexcept nogil:
    pass


cdef void end_before_wait(EndState *state) noexcept with gil:
    state.due = False
    if state.iteration is not NULL:
        (<Iteration> state.iteration)._end_before_wait()


@cython.final
cdef class Iteration:
    """The current loop iteration: input for a limited time, output at its end."""

    def __init__(self, loop, Slicer slicer not None, bint waits, CommitSchedule commits not None):
        self.loop = loop
        self.slicer = slicer
        self.commits = commits
        self.due = []
        self.waits = waits

    def __dealloc__(self):
        if self.hooks is not NULL:
            self.state.iteration = NULL

    def attach(self):
        """Has the loop call end() in C before it waits, until detach(), which must come before the loop closes. Does
        nothing if uvloop does not export libuv's functions."""
        cdef EndState *state = <EndState *> calloc(1, sizeof(EndState))
        if state is NULL:
            raise MemoryError
        state.iteration = <void *> self
        try:
            self.hooks = hooks_open(self.loop, before_wait, after_wait, state)
            self.state = state
        except OSError:
            return

    def detach(self):
        """Undoes attach()."""
        if self.hooks is NULL:
            return
        self.state.iteration = NULL
        hooks_close(self.hooks)
        self.hooks = NULL
        if self.scheduled:
            self.loop.call_soon(self.end)

    cdef void schedule(self) noexcept:
        if not self.scheduled:
            if self.hooks is NULL:
                self.loop.call_soon(self.end)
            else:
                self.state.due = True
            self.scheduled = self.commits.awaited = True

    cdef void _end_before_wait(self) noexcept:
        cdef bint writes = self.commits.scheduled
        self.queued = False
        self.end()
        if writes or self.queued or self.scheduled:
            # Answers that commits have given over HTTP are queued as well: the loop must not sleep on them.
            self.loop.call_soon(self.end)

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
                self.iteration.queued = True
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
        cdef int count = gather_vector(&self.gather, length, pieces, PIECES, &bytes)
        if count == 1:
            sent = send(self.fd, pieces[0].iov_base, pieces[0].iov_len, MSG_DONTWAIT | MSG_NOSIGNAL)
        else:
            memset(&header, 0, sizeof(header))
            header.msg_iov = pieces
            header.msg_iovlen = <size_t> count
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
                self.iteration.queued = True
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


# ====================================================================== marks

@cython.final
@cython.freelist(256)
cdef class Mark:
    """A reply, or the first of several, that depends on a commit."""


@cython.final
cdef class Marks:
    """The marks of one connection."""

    @staticmethod
    cdef Marks new(Outbox outbox):
        cdef Marks self = Marks.__new__(Marks)
        self.outbox = outbox
        return self

    cdef int add(self, Commit commit, int kind, LoopWork waiter) except -1:
        if self._mark(commit, commit.serial, kind):
            commit.wait(waiter)
        return 0

    cdef int add_running(self, Commit commit, int kind, LoopWork waiter) except -1:
        if self._mark(commit, commit.serial - 1, kind):
            commit.wait_running(waiter)
        return 0

    cdef bint _mark(self, Commit commit, int64_t serial, int kind) except -1:
        """Adds a mark; returns False if the last one is for the same commit."""
        cdef Mark mark = self.last
        if mark is not None and mark.commit is commit and mark.serial == serial:
            return False
        if self.queue is None:
            self.queue = deque()
        self.last = mark = Mark.__new__(Mark)
        mark.commit = commit
        mark.serial = serial
        mark.at = self.outbox.end()
        mark.kind = kind
        if not self.queue:
            self.outbox.hold = mark.at
        self.queue.append(mark)
        return True

    cdef void commit_ended(self, Commit commit, int error) noexcept:
        cdef Mark mark
        if self.queue is None:
            return
        for mark in self.queue:
            if mark.commit is commit and not mark.settled and mark.serial <= commit.ended:
                mark.settled = True
                mark.error = error

    cdef Mark settle(self):
        cdef Mark mark
        while self.queue:
            mark = self.queue[0]
            if not mark.settled:
                break
            self.queue.popleft()
            if mark.error and not self.outbox.closed:
                self.queue.clear()
                self.last = None
                self.outbox.hold = -1
                self.outbox.cut(mark.at)
                return mark
        if self.queue:
            mark = self.queue[0]
            self.outbox.hold = mark.at
        else:
            self.last = None
            self.outbox.hold = -1
        self.outbox.unhold()
        return None

    cdef void clear(self) noexcept:
        self.queue = self.last = None
