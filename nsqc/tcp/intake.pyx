"""The input of one connection. The loop reads into this object, so a read creates no Python object."""

cimport cython
from libc.stdint cimport int64_t
from libc.string cimport memcpy
from cpython.buffer cimport PyBuffer_FillInfo

from nsqc.loop.watch cimport span_over
from nsqc.store.clock cimport monotonic_ns
from nsqc.store.message cimport Message, message_unref
from nsqc.tcp.hub cimport HEADROOM, RECEIVE_BYTES, Hub
from nsqc.tcp.largebody cimport CAME_WHOLE, CAME_WRONG, SIZE_BYTES, LargeBody
from nsqc.tcp.link cimport Link
from nsqc.tcp.outbox cimport Outbox
from nsqc.wire.codec cimport Codec
from nsqc.wire.inbuf cimport inbuf_append, inbuf_drop, inbuf_free
from nsqc.wire.parser cimport PARSE_BODY, Parser

from nsqc.wire.codec import CodecError

cdef enum:
    # One read, in a loop iteration that has read enough: it cannot be refused, so its bytes are kept.
    LITTLE_BYTES = 4096
    # Of a message, read straight into it: less is not worth a separate read, more takes too long.
    DIRECT_LEAST = 16384
    DIRECT_MOST = 1048576


@cython.final
cdef class Intake:
    """Passes bytes to the parser."""

    @staticmethod
    cdef Intake new(Link link, Hub hub, Outbox outbox, Parser parser, int64_t now_ns):
        cdef Intake self = Intake.__new__(Intake)
        self.link = link
        self.hub = hub
        self.outbox = outbox
        self.parser = parser
        self.heard_ns = now_ns
        return self

    def __dealloc__(self):
        inbuf_free(&self.inbuf)

    # ------------------------------------------------------------------ the loop's buffer

    def __len__(self):
        return self.hub.room    # TLS asks for the buffer's size

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.hub.c_into, self.hub.room, 0, flags)

    cdef int lend(self) except -1:
        cdef Hub hub = self.hub
        cdef Py_ssize_t missing
        cdef bint enough = hub.iteration.read_enough()
        hub.c_into = hub.area + HEADROOM
        hub.room = LITTLE_BYTES if enough else RECEIVE_BYTES
        self.direct = False
        if self.gathering and not self.detour and (self.large.guessed or self._may_read_direct()):
            missing = self.large.missing(self.parser, DIRECT_LEAST)
            if missing >= DIRECT_LEAST or self.large.guessed:
                self.direct = True
                hub.c_into = self.large.into()
                hub.room = min(missing, LITTLE_BYTES if enough else DIRECT_MOST)
        return 0

    cdef bint _may_read_direct(self) noexcept:
        """Whether no kept bytes come before the next read, and TLS does not own the socket."""
        return not self.held and self.inbuf.length == 0 and self.outbox.fd >= 0

    cdef int updated(self, Py_ssize_t length) except -1:
        self.ran = False
        if self.direct:
            return self._take_direct(length)
        if self.detour:
            return self._take_detour(length)
        return self._take(length)

    # ------------------------------------------------------------------ to the parser

    cdef int _take(self, Py_ssize_t length) except -1:
        """Runs the commands in the kept bytes, then those in the area."""
        cdef const char *c_from = self.hub.area + HEADROOM
        cdef Py_ssize_t kept = self.inbuf.length
        cdef Py_ssize_t used
        self._heard()
        if self.held & HELD_INPUT:
            self._keep(c_from, length)
            return 0
        if kept == 0:
            used = self.link.consume(c_from, length)
            if used < length and not self.closed:
                self._keep(c_from + used, length - used)
        elif kept <= HEADROOM:
            c_from -= kept
            memcpy(<char *> c_from, self.inbuf.data, <size_t> kept)
            used = self.link.consume(c_from, kept + length)
            if not self.closed:
                if used == 0:
                    self._keep(c_from + kept, length)
                else:
                    inbuf_drop(&self.inbuf, kept)
                    if used < kept + length:
                        self._keep(c_from + used, kept + length - used)
        elif inbuf_append(&self.inbuf, c_from, length) < 0:
            self.link.end()
        else:
            inbuf_drop(&self.inbuf, self.link.consume(self.inbuf.data, self.inbuf.length))
        self.link.after_input()
        return 0

    cdef void _heard(self) noexcept:
        self.hub.broker.clock.refresh()
        self.heard_ns = self.hub.broker.clock.monotonic
        self.ran = True
        self.hub.iteration.begin_reading(self.heard_ns)

    cdef void _keep(self, const char *c_from, Py_ssize_t length) noexcept:
        """Adds to inbuf; without memory the connection ends."""
        if inbuf_append(&self.inbuf, c_from, length) < 0:
            self.link.end()

    cdef int run_kept(self) except -1:
        self.hub.broker.clock.refresh()
        # The client could not be heard meanwhile.
        self.heard_ns = self.hub.broker.clock.monotonic
        inbuf_drop(&self.inbuf, self.link.consume(self.inbuf.data, self.inbuf.length))
        self.link.after_input()
        if self.codec is not None and not self.held & HELD_INPUT:
            self.decode_later()
        if not self.held and not self.closed:
            self.outbox.transport.resume_reading()
        return 0

    cdef Py_ssize_t incomplete(self) noexcept:
        if self.gathering:
            return self.parser.line_bytes + SIZE_BYTES + self.large.body_bytes(self.parser, self.inbuf.length)
        return self.inbuf.length

    # ------------------------------------------------------------------ large bodies

    cdef Py_ssize_t begin_gathering(self, const char *c_at, Py_ssize_t have, OpenBatch batch) noexcept:
        cdef Py_ssize_t used
        if self.large is None:
            self.large = LargeBody.__new__(LargeBody)
        else:
            self.large.drop(self.hub.slicer)    # messages of a refused command
        used = self.large.begin(self.parser, c_at, batch)
        if used < 0:
            return 0    # kept in inbuf instead, or refused for the same reason
        self.gathering = True
        return used

    cdef int gather(self, const char *c_at, Py_ssize_t length, Py_ssize_t *used) noexcept:
        cdef int event = self.large.gather(self.parser, c_at, length, used)
        self.arrived = False
        if event == PARSE_BODY:
            self.gathering = False
        return event

    cdef int _take_direct(self, Py_ssize_t length) except -1:
        """Accounts for bytes read into a message."""
        cdef int came
        self.direct = False
        if self.closed:
            return 0
        self._heard()
        came = self.large.came(self.parser, length)
        if came == CAME_WHOLE:
            self.arrived = True
            self.link.consume(NULL, 0)
        elif came == CAME_WRONG:
            self._gather_again()
        self.link.after_input()
        return 0

    cdef int _gather_again(self) except -1:
        """Takes the bytes read into a message of the wrong size as ordinary input."""
        cdef Py_ssize_t length = <Py_ssize_t> self.large.have + SIZE_BYTES
        cdef Message *wrong = self.large.take_wrong()
        cdef const char *c_from = wrong.body - SIZE_BYTES
        cdef Py_ssize_t used
        try:
            used = self.link.consume(c_from, length)
            if used < length and not self.closed:
                self._keep(c_from + used, length - used)
        finally:
            message_unref(wrong)
        return 0

    # ------------------------------------------------------------------ pauses

    cdef void hold(self, int why) noexcept:
        if not self.held and not self.closed:
            self.outbox.transport.pause_reading()
        self.held |= why

    cdef void release(self, int why) noexcept:
        if self.held & why:
            self.held &= ~why
            if not self.held and not self.closed:
                self.outbox.transport.resume_reading()

    cdef void close(self) noexcept:
        self.closed = self.detour = True

    cdef void free(self) noexcept:
        """The connection is gone. Breaks the cycle with it, which would wait for the garbage collector."""
        inbuf_free(&self.inbuf)
        if self.large is not None:
            self.large.drop(self.hub.slicer)
        self.link = None

    # ------------------------------------------------------------------ upgrades and codecs

    cdef void begin_upgrade(self) noexcept:
        self.upgrading = self.detour = True
        self.hold(HELD_UPGRADE)

    cdef void drop_kept(self) noexcept:
        inbuf_free(&self.inbuf)

    cdef int end_upgrade(self, Codec codec) except -1:
        """Passes bytes that were kept meanwhile through the codec."""
        cdef bytes rest = self.inbuf.data[:self.inbuf.length]
        cdef const char *c_rest = rest
        cdef Py_ssize_t at = 0
        cdef Py_ssize_t length
        self.drop_kept()
        self.upgrading = False
        self.codec = codec
        self.detour = self.closed or codec is not None
        self.release(HELD_UPGRADE)
        while at < len(rest) and not self.closed:
            length = min(len(rest) - at, <Py_ssize_t> RECEIVE_BYTES)
            memcpy(self.hub.area + HEADROOM, c_rest + at, <size_t> length)
            self.direct = False
            self.updated(length)
            at += length
        return 0

    cdef int _take_detour(self, Py_ssize_t length) except -1:
        if self.closed:
            return 0
        if self.upgrading:
            self._keep(self.hub.area + HEADROOM, length)
            return 0
        self.codec.feed(self.hub.area + HEADROOM, length)
        return self._decode()

    cdef int _decode(self) except -1:
        """Decodes and runs up to one read's worth of input; the next read waits until all is decoded."""
        cdef char *c_to = self.hub.area + HEADROOM
        cdef Py_ssize_t left = RECEIVE_BYTES
        cdef Py_ssize_t length
        while left > 0 and not self.closed and not self.held & (HELD_UNREAD | HELD_INPUT):
            try:
                length = self.codec.decode(c_to)
            except CodecError as error:
                self.link.refuse_stream(b"E_INVALID " + str(error).encode())
                return 0
            if length == 0:
                break
            self._take(length)
            left -= length
        if left <= 0:
            self.decode_later()
            return 0
        self.release(HELD_DECODING)
        if self.codec.ended and not self.held:
            self.link.input_ended()
        return 0

    cdef int decode_later(self) except -1:
        self.hold(HELD_DECODING)
        self.hub.loop.call_soon(self.decode_more)
        return 0

    def decode_more(self):
        """Decodes bytes from an earlier loop iteration."""
        cdef int64_t began_ns = monotonic_ns()
        cdef Link link = self.link
        if not self.closed:
            try:
                self._decode()
            except BaseException as error:
                self.link.fail(error)
            span_over(monotonic_ns() - began_ns, b"compressed commands of", link)
