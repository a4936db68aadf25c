"""Bytes from clients: decoded, parsed, gathered, fairly shared; heartbeats and upgrades. See the .pxd."""

# types: from nsqc.log import Log
# types: from nsqc.options.declared import Settings
# types: from nsqc.tcp.connection import Connection
cimport cython
import asyncio
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from nsqc.broker.broker cimport Broker
from nsqc.broker.topic cimport OpenBatch
from nsqc.loop.uv cimport span_over
from nsqc.store.backlog cimport PUT_EXITING
from nsqc.net.listener import handshake_error
from nsqc.store.memory cimport monotonic_ns
from nsqc.store.message cimport Message, fifo_push, message_new, message_unref
from nsqc.store.publishids cimport MOST_ID_BYTES
from nsqc.store.work cimport Slicer
from nsqc.tcp.outbox cimport Iteration, Marks, Outbox
from nsqc.tcp.session cimport Limits, Link, Session
from nsqc.wire.codecs cimport Codec
from nsqc.wire.codecs import CodecError, new_codec
from nsqc.wire.const cimport FRAME_RESPONSE, SIZE_BYTES
from nsqc.wire.parser cimport (AT_BODY, CMD_DMPUB, CMD_PUB, MPUB_WHOLE, PARSE_BODY, PARSE_MORE, PARSE_NO_MEMORY,
                               Command, Parser, command_id_at, command_is_batch, inbuf_append, inbuf_drop, inbuf_free,
                               mpub_event, mpub_next, mpub_passed, parse_decimal)


# ====================================================================== large bodies
# Large bodies of PUB and MPUB, gathered in messages as they arrive. Knows no socket and publishes nothing.

cdef const char *NO_ID = b"0000000000000000"


@cython.final
cdef class LargeBody:
    """The arrived part of a large body; created when a connection first sends one."""

    def __dealloc__(self):
        if self.partial is not NULL:
            message_unref(self.partial)

    @staticmethod
    cdef bint wants(Parser parser, Py_ssize_t have) noexcept:
        # Of the body alone: the count of a batch must have arrived, and a line may be long.
        have -= parser.line_bytes + SIZE_BYTES
        if parser.state != AT_BODY or have < LEAST_GATHERED:
            return False
        if parser.command.kind == CMD_PUB:
            return parser.command.size >= LARGE_MESSAGE
        return command_is_batch(parser.command.kind) and (parser.command.size >= LARGE_BATCH or have >= LARGE_BATCH)

    cdef Py_ssize_t begin(self, Parser parser, const char *c_at, OpenBatch batch) noexcept:
        self.batch = batch
        self.last_size = 0
        self.topic_bytes = parser.command.arg_bytes[1]
        memcpy(self.topic_name, parser.command.args[1], <size_t> self.topic_bytes)
        self._keep_words(&parser.command)
        if parser.command.kind == CMD_PUB:
            if not self._expect(<uint32_t> parser.command.size):
                return -1
            return parser.command.body - c_at
        # Gathering repeats the checks of the batch.
        parser.command.mpub.index = 0
        parser.command.mpub.at = 4
        return parser.command.body + 4 - c_at

    cdef void _keep_words(self, const Command *command) noexcept:
        """Keeps the words of the line that follow the topic."""
        cdef int at = command_id_at(command.kind)
        self.defer_ms = self.id_bytes = 0
        if command.kind == CMD_DMPUB:
            parse_decimal(command.args[2], command.arg_bytes[2], &self.defer_ms)
        if command.argc > at and command.arg_bytes[at] <= MOST_ID_BYTES:
            self.id_bytes = command.arg_bytes[at]
            memcpy(self.id, command.args[at], <size_t> self.id_bytes)

    cdef bint _expect(self, uint32_t size) noexcept:
        self.partial = message_new(NO_ID, 0, NULL, size)
        self.have = 0
        self.guessed = False
        return self.partial is not NULL

    cdef int gather(self, Parser parser, const char *c_at, Py_ssize_t length, Py_ssize_t *used) noexcept:
        cdef Py_ssize_t part, at = 0
        cdef int event = PARSE_MORE
        while True:
            if self.partial is NULL:
                event = mpub_event(mpub_next(&parser.command.mpub, c_at + at, length - at, parser.max_message,
                                             parser.limit))
                if event != PARSE_BODY:
                    break
                if not self._expect(<uint32_t> parser.command.mpub.value):
                    event = PARSE_NO_MEMORY
                    break
                at += SIZE_BYTES
            part = min(length - at, <Py_ssize_t> (<int64_t> self.partial.size - self.have))
            memcpy(self.partial.body + self.have, c_at + at, <size_t> part)
            self.have += part
            at += part
            if self.have < self.partial.size:
                event = PARSE_MORE
                break
            if fifo_push(&self.batch.gathered, self.partial, 0, 0) < 0:
                event = PARSE_NO_MEMORY
                break
            self.last_size = self.partial.size
            self.partial = NULL
            if parser.command.kind == CMD_PUB or mpub_passed(&parser.command.mpub):
                parser.body_ended()
                event = PARSE_BODY
                break
        used[0] = at
        return event

    cdef Py_ssize_t missing(self, Parser parser, uint32_t least) noexcept:
        if self.partial is NULL:
            if parser.command.kind == CMD_PUB or self.last_size < least or not self._expect(self.last_size):
                return 0
            self.have = -SIZE_BYTES
            self.guessed = True
        return <Py_ssize_t> (<int64_t> self.partial.size - self.have)

    cdef int came(self, Parser parser, Py_ssize_t length) noexcept:
        self.have += length
        if self.guessed and self.have >= 0:
            if (mpub_next(&parser.command.mpub, self.partial.body - SIZE_BYTES, SIZE_BYTES, parser.max_message,
                          parser.limit) != MPUB_WHOLE
                    or <uint32_t> parser.command.mpub.value != self.partial.size):
                return CAME_WRONG
            self.guessed = False
        return CAME_WHOLE if self.have == self.partial.size else CAME_PART

    cdef Message *take_wrong(self) noexcept:
        cdef Message *wrong = self.partial
        self.partial = NULL
        self.last_size = 0
        self.guessed = False
        return wrong

    cdef char *into(self) noexcept:
        return self.partial.body + self.have

    cdef Py_ssize_t body_bytes(self, Parser parser, Py_ssize_t kept) noexcept:
        if parser.command.kind == CMD_PUB:
            return self.have
        return <Py_ssize_t> parser.command.mpub.at + (kept if self.partial is NULL else SIZE_BYTES + self.have)

    cdef void drop(self, Slicer slicer) noexcept:
        if self.partial is not NULL:
            message_unref(self.partial)
            self.partial = NULL
        if self.batch is not None:
            self.batch.end_with(PUT_EXITING, slicer)
            self.batch = None


# ====================================================================== hub
# State shared by all connections of one daemon: broker, limits, the receive area, the log of their errors.

@cython.final
cdef class Hub:
    """Created once, before the first connection."""

    def __cinit__(self):
        self.area = <char *> malloc(HEADROOM + RECEIVE_BYTES)
        if self.area is NULL:
            raise MemoryError

    def __init__(self, Broker broker not None, settings: Settings, log: Log, loop: AbstractEventLoop,
                 connection_limits: ConnectionLimits, tls: Certificates | None = None,
                 authority: Authority | None = None, audit: Audit | None = None):
        self.connection_limits = connection_limits
        self.tls = tls
        self.authority = authority
        self.audit = audit
        self.broker = broker
        self.settings = settings
        self.log = log
        self.loop = loop
        self.slicer = broker.slicer
        self.iteration = Iteration(loop, self.slicer, settings.now.output_buffer_flush == "timeout",
                                   broker.commits)
        self.room = RECEIVE_BYTES
        self.limits = Limits(settings.now)
        settings.on_change(self._settings_changed)
        self.connections = {}
        self.tallies = {}

    def __dealloc__(self):
        free(self.area)

    def _settings_changed(self, options):
        """Open connections keep their limits, as their clients may have been sent them."""
        self.limits = Limits(options)

    cdef void complain(self, address, bytes error) noexcept:
        """Logs a client's error, unless that code was too frequent."""
        code = error.partition(b" ")[0]
        tally = self.tallies.get(code)
        if tally is not None:
            if not tally.is_over:
                tally.count += 1
                return
            del self.tallies[code]
        self.log.error("[%s] - %s", address, error.decode("utf-8", "backslashreplace"), kind=code)
        tally = self.log.tally(code)
        if tally is not None:
            self.tallies[code] = tally

    def begin(self):
        """Clients are served from now on, until close()."""
        self.iteration.attach()

    def sessions(self) -> list[Session]:
        """The sessions of all clients that have sent their magic."""
        return [session for session in [connection.session for connection in self.connections] if session is not None]

    def close(self, double arriving_s=0):
        """Flushes and closes all connections except those that Connection.arrives() spares for now."""
        self.iteration.detach()
        for connection in list(self.connections):
            if not connection.arrives(arriving_s):
                connection.close()


# ====================================================================== intake
# The input of one connection. The loop reads into this object, so a read creates no Python object.

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

    cdef void dispose(self) noexcept:
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


# ====================================================================== heartbeat
# Heartbeats: sent to a connected client, and expected from it; anything it sends counts as one.

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


# ====================================================================== upgrade
# Upgrades a plain connection to TLS and compression. See the .pxd for the steps.

HANDSHAKE_S = 5.0  # as with nsqd
SHUTDOWN_S = 5.0  # for a client to receive its last bytes and the end of TLS
_under_way = set()  # tasks, since the loop only has weak references to them


@cython.final
cdef class Upgrade:
    """One upgrade of one connection."""

    @staticmethod
    cdef Upgrade new(Link link, Hub hub, Session session, Intake intake, Outbox outbox, Marks marks, object host):
        cdef Upgrade self = Upgrade.__new__(Upgrade)
        self.link = link
        self.hub = hub
        self.session = session
        self.intake = intake
        self.outbox = outbox
        self.marks = marks
        self.host = host
        self.agreed = session.layers
        session.layers = None
        return self

    cdef int begin(self) except -1:
        """Earlier input goes first, so the rest waits for the end of this loop iteration."""
        self.intake.begin_upgrade()
        return self.retry_later()

    cdef int retry_later(self) except -1:
        self.hub.loop.call_soon(self.proceed)
        return 0

    def proceed(self):
        """The reply to IDENTIFY is sent in the clear; then comes TLS, then, inside, compression."""
        if self.intake.closed or self.shaking_hands or self.agreed is None:
            return
        try:
            self._proceed()
        except BaseException as error:
            self.link.fail(error)

    def _proceed(self):
        self.outbox.flush()
        if self.marks.waits() or self.outbox.blocked:
            return      # earlier replies wait for the disk or the socket; the connection calls again after both
        if self.agreed.tls:
            self._secure()
        else:
            self._compress()

    # ------------------------------------------------------------------ TLS

    def _secure(self):
        self.hub.log.info("PROTOCOL(V2): [%s] upgrading connection to TLS", self.session.address)
        # Input after IDENTIFY came in the clear, so it must not count.
        self.intake.drop_kept()
        if not self.hub.connection_limits.begin_handshake(self.host):
            self.outbox.transport.abort()
            return
        self.outbox.blocked = self.shaking_hands = True
        task = self.hub.loop.create_task(self._shake_hands())
        _under_way.add(task)
        task.add_done_callback(_under_way.discard)

    async def _shake_hands(self):
        # The protocol of the connection stays the same object.
        try:
            transport = await self.hub.loop.start_tls(self.outbox.transport, self.link, self.hub.tls.context,
                                                      server_side=True, ssl_handshake_timeout=HANDSHAKE_S,
                                                      ssl_shutdown_timeout=SHUTDOWN_S)
        except (OSError, EOFError, asyncio.CancelledError) as error:
            self._tls_failed(error)
        else:
            try:
                self._tls_done(transport)
            except Exception as error:
                # Nothing else would end this connection.
                self.link.fail(error)

    def _tls_done(self, transport):
        self.hub.connection_limits.end_handshake(True)
        if self.intake.closed:
            self.link.lost(None)
            transport.abort()
            return
        self.outbox.transport = transport
        self.outbox.fd = -1
        self.outbox.blocked = False
        self.intake.held = 0        # the new transport is reading
        from nsqc.tcp.identify import describe  # here: only needed for clients with TLS

        self.session.tls = describe(transport.get_extra_info("ssl_object"))
        self.session.locked = False
        self.link.say_ok()
        self.outbox.flush()
        self._compress()

    def _tls_failed(self, error):
        """The handshake has failed, or the connection was lost meanwhile."""
        transport = self.outbox.transport
        self.hub.connection_limits.end_handshake(False)
        self.hub.log.error("[%s] - E_IDENTIFY_FAILED IDENTIFY failed TLS handshake - %s", self.session.address,
                           handshake_error(error))
        # The transport reports its end to TLS, and TLS reports it to us only after a successful handshake.
        self.link.lost(error)
        if transport is not None:
            transport.abort()

    # ------------------------------------------------------------------ compression

    def _compress(self):
        """The last step, with or without a codec."""
        cdef Codec codec = None
        agreed = self.agreed
        self.agreed = None
        self.shaking_hands = False
        self.link.upgraded()
        if agreed.codec:
            self.hub.log.info("PROTOCOL(V2): [%s] upgrading connection to %s", self.session.address, agreed.codec)
            codec = self.outbox.codec = new_codec(agreed.codec, agreed.level)
            self.session.compression = agreed.codec
            self.link.say_ok()
        if agreed.tls:
            # Not 0: TLS would then report a full buffer with nothing in it.
            self.outbox.transport.set_write_buffer_limits(high=1, low=0)
        self.intake.end_upgrade(codec)
