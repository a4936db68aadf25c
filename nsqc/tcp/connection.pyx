"""The loop's protocol for a V2 client. It acts on what commands return, and knows nothing of topics but through them.

The object is the loop's BufferedProtocol and the buffer itself, so a read makes no Python object.
"""

cimport cython
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy
from cpython.buffer cimport PyBuffer_FillInfo

from nsqc.store.clock cimport monotonic_ns
from nsqc.broker.topic cimport Topic
from nsqc.store.backlog cimport PUT_DISK, PUT_MEMORY
from nsqc.store.message cimport Message, message_unref
from nsqc.store.slices cimport STEPS
from nsqc.tcp.commands cimport (ANSWER, ANSWER_OK, DONE, FAILED, GOES_ON, SPILLED, UPGRADE, WAITS, WANTS_BODY,
                                cut_short, go_on_mpub, refuse, run_body, run_gathered, run_line)
from nsqc.tcp.guard cimport Guard
from nsqc.tcp.largebody cimport CAME_WHOLE, CAME_WRONG, LargeBody
from nsqc.wire.const cimport FRAME_ERROR, FRAME_RESPONSE, MAGIC_BYTES
from nsqc.wire.inbuf cimport inbuf_append, inbuf_drop, inbuf_free
from nsqc.wire.parser cimport (AT_LINE, CMD_DPUB, CMD_MPUB, CMD_PUB, PARSE_BODY, PARSE_LINE, PARSE_LINE_TOO_LONG,
                               PARSE_MORE)

import os
import traceback
from collections import deque

from nsqc.net.limits import handshake_error, host_of
from nsqc.net.address import peer_text
from nsqc.tcp import upgrade
from nsqc.wire.codec import CodecError

cdef enum:
    RECEIVE_BYTES = 262144
    HEADROOM = 65536
    # A read of a loop iteration that has read enough: it cannot be refused, and has to be kept.
    LITTLE_BYTES = 4096
    # Of a message, read straight into it: less is not worth a read of its own, more takes too long.
    DIRECT_LEAST = 16384
    DIRECT_MOST = 1048576
    ERROR_LINES = 10            # about clients in a second; beyond that they are counted
    SUSPECT_MS = 50             # to a client that seems silent, after the loop may have been busy

# A client that closes properly takes what is left within moments, and a network that has lost packets sends them again
# within one or two seconds. Longer silence only costs a descriptor.
GIVE_UP_S = 5.0
MARK_NAMES = {CMD_PUB: b"PUB", CMD_MPUB: b"MPUB", CMD_DPUB: b"DPUB"}


@cython.final
cdef class Hub:
    """What the connections of one daemon share: broker, limits, the turn, the receive area."""

    def __cinit__(self):
        self.area = <char *> malloc(HEADROOM + RECEIVE_BYTES)
        if self.area is NULL:
            raise MemoryError

    def __init__(self, Broker broker not None, settings, log, loop, connection_limits, tls=None):
        self.connection_limits = connection_limits
        self.tls = tls
        self.broker = broker
        self.settings = settings
        self.log = log
        self.loop = loop
        self.slicer = broker.slicer
        self.turn = Turn(loop, self.slicer, settings.now.output_buffer_flush == "timeout")
        self.room = RECEIVE_BYTES
        self.limits = Limits(settings.now)
        settings.on_change(self._settings_changed)
        self.connections = {}

    def __dealloc__(self):
        free(self.area)

    def _settings_changed(self, options):
        """For connections to come; those that are open keep their limits, which they may have been told."""
        self.limits = Limits(options)

    cdef void complain(self, Connection connection, bytes text) noexcept:
        """Logs an error of a client: the first of each second, and how many more there were."""
        cdef int64_t now = monotonic_ns()
        if now >= self.error_lines_ns:
            if self.errors_unsaid:
                self.log.error("%d more errors of clients", self.errors_unsaid)
            self.error_lines_ns = now + 1000000000
            self.error_lines = self.errors_unsaid = 0
        if self.error_lines >= ERROR_LINES:
            self.errors_unsaid += 1
            return
        self.error_lines += 1
        self.log.error("[%s] - %s", connection.address, text.decode("utf-8", "backslashreplace"))

    def sessions(self) -> list:
        """The sessions of all clients that have greeted."""
        return [session for session in map(session_of, self.connections) if session is not None]

    def close(self, double arriving_s=0):
        """Flushes and closes all connections, but for now those that Connection.arrives()."""
        for connection in list(self.connections):
            if not connection.arrives(arriving_s):
                connection.close()


def session_of(Connection connection not None):
    """A connection's Session; None before its magic has come."""
    return connection.session


@cython.final
@cython.freelist(256)
cdef class Mark:
    """A reply, or the first of several, that depends on a commit."""


@cython.final
cdef class Connection(Publisher):
    """One client connection, from accept to close."""

    def __init__(self, Hub hub not None):
        self.hub = hub
        self.marks = deque()

    def __dealloc__(self):
        inbuf_free(&self.inbuf)

    # ------------------------------------------------------------------ called by the loop

    def connection_made(self, transport):
        """A client has connected."""
        host = host_of(transport.get_extra_info("peername"))
        if not self.hub.connection_limits.enter(host):
            self.closing = self.detour = True
            transport.abort()
            return
        self.host = host
        options = self.hub.settings.now
        sock = transport.get_extra_info("socket")
        self.transport = transport
        self.address = peer_text(transport.get_extra_info("peername"))
        # Everything that the socket does not take at once blocks the outbox until it is gone.
        transport.set_write_buffer_limits(high=0)
        self.outbox = Outbox.new(self.hub.turn, transport, sock.fileno(), 16384,
                                 options.output_buffer_timeout // 1000000)
        self.parser = Parser.new(options.message_limit)
        self.hub.connections[self] = None
        self.made_ns = self.heard_ns = self.began_ns = monotonic_ns()
        self._watch_stall()
        self.hub.log.info("TCP: new client(%s)", self.address)

    def get_buffer(self, sizehint):
        """Where the next bytes go: the shared area, or a large message, through this object's buffer interface."""
        cdef Hub hub = self.hub
        cdef Py_ssize_t missing
        cdef bint enough = hub.turn.read_enough()
        hub.c_into = hub.area + HEADROOM
        hub.room = LITTLE_BYTES if enough else RECEIVE_BYTES
        self.direct = False
        if self.gathering and not self.detour and (self.large.guessed or self._may_read_direct()):
            missing = self.large.missing(self.parser, DIRECT_LEAST)
            if missing >= DIRECT_LEAST or self.large.guessed:
                self.direct = True
                hub.c_into = self.large.into()
                hub.room = min(missing, LITTLE_BYTES if enough else DIRECT_MOST)
        return self

    def __len__(self):
        return self.hub.room    # TLS asks for the size of its buffer

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.hub.c_into, self.hub.room, 0, flags)

    def buffer_updated(self, Py_ssize_t length):
        """Bytes have come."""
        try:
            if self.direct:
                self._take_direct(length)
            elif self.detour:
                self._take_detour(length)
            else:
                self._take(length)
        except BaseException as error:
            self.broke(error)

    cdef bint _may_read_direct(self) noexcept:
        """Nothing stands before the next read, and it is not TLS's."""
        return not self.held and self.inbuf.length == 0 and self.outbox.fd >= 0

    cdef int _take_direct(self, Py_ssize_t length) except -1:
        """Notes what has been read into a message."""
        cdef int came
        self.direct = False
        if self.closing:
            return 0
        self.hub.broker.clock.refresh()
        self.heard_ns = self.hub.broker.clock.monotonic
        self.hub.turn.begin_reading(self.heard_ns)
        came = self.large.came(self.parser, length)
        if came == CAME_WHOLE:
            self.arrived = True
            self._consume(NULL, 0)
        elif came == CAME_WRONG:
            self._gather_again()
        self._after_input()
        return 0

    cdef int _gather_again(self) except -1:
        """What was read into a message of a wrong size is input like any other."""
        cdef Py_ssize_t length = <Py_ssize_t> self.large.have + 4
        cdef Message *wrong = self.large.take_wrong()
        cdef const char *c_from = wrong.body - 4
        cdef Py_ssize_t used
        try:
            used = self._consume(c_from, length)
            if used < length and not self.closing and inbuf_append(&self.inbuf, c_from + used, length - used) < 0:
                self._end()
        finally:
            message_unref(wrong)
        return 0

    cdef int _take(self, Py_ssize_t length) except -1:
        """Runs what lies in the area, behind what is kept."""
        cdef const char *c_from = self.hub.area + HEADROOM
        cdef Py_ssize_t kept = self.inbuf.length
        cdef Py_ssize_t used
        self.hub.broker.clock.refresh()
        self.heard_ns = self.hub.broker.clock.monotonic
        self.hub.turn.begin_reading(self.heard_ns)
        if self.held & HELD_INPUT:
            if inbuf_append(&self.inbuf, c_from, length) < 0:
                self._end()
            return 0
        if kept == 0:
            used = self._consume(c_from, length)
            if used < length and not self.closing and inbuf_append(&self.inbuf, c_from + used, length - used) < 0:
                self._end()
        elif kept <= HEADROOM:
            c_from -= kept
            memcpy(<char *> c_from, self.inbuf.data, <size_t> kept)
            used = self._consume(c_from, kept + length)
            self._keep(c_from, used, kept, length)
        elif inbuf_append(&self.inbuf, c_from, length) < 0:
            self._end()
        else:
            inbuf_drop(&self.inbuf, self._consume(self.inbuf.data, self.inbuf.length))
        self._after_input()
        return 0

    cdef void _after_input(self) noexcept:
        """After commands were run."""
        if (self.inbuf.length or self.gathering) and not self.held & HELD_INPUT:
            self._watch_stall()
        if self.session is not None and self.session.pump_due:
            self.session.pump_due = False
            self.session.channel.pump()
        if (self.outbox.blocked and self.outbox.unread_bytes() > self.hub.limits.max_buffered_bytes
                and not self.held & HELD_UNREAD):
            self._hold(HELD_UNREAD)

    cdef void _hold(self, int why) noexcept:
        if not self.held and not self.closing:
            self.transport.pause_reading()
        self.held |= why

    cdef void _release(self, int why) noexcept:
        if self.held & why:
            self.held &= ~why
            if not self.held and not self.closing:
                self.transport.resume_reading()

    cdef int _keep(self, const char *c_from, Py_ssize_t used, Py_ssize_t kept, Py_ssize_t length) except -1:
        """After kept and length bytes at c_from were parsed and used of them are done: inbuf holds the rest."""
        if self.closing:
            return 0
        if used == 0:
            if inbuf_append(&self.inbuf, c_from + kept, length) < 0:
                self._end()
            return 0
        inbuf_drop(&self.inbuf, kept)
        if used < kept + length and inbuf_append(&self.inbuf, c_from + used, kept + length - used) < 0:
            self._end()
        return 0

    def eof_received(self):
        """The client sends no more; what it has sent is answered, then the connection closes."""
        try:
            if not self.closing and self.session is not None and not self.held & HELD_INPUT:
                if self.codec is not None and self.codec.cut_short():
                    self._act(self.session.fail(b"E_INVALID %b stream is cut short" % self.codec.name.encode()))
                else:
                    self._cut_short()
        finally:
            self.close()
        return True

    cdef int _cut_short(self) except -1:
        """The client has left, or stalled, amid a command, or between two."""
        cdef Py_ssize_t have = self.inbuf.length
        if self.gathering:
            have = self.parser.line_bytes + 4 + self.large.body_bytes(self.parser, have)
        self._act(cut_short(self.session, self.parser, have))
        return 0

    def connection_lost(self, error):
        """The connection is gone."""
        self.closing = self.detour = True
        if self.host is None:
            return
        self.hub.connection_limits.leave(self.host)
        self.host = None
        self.hub.connections.pop(self, None)
        self.outbox.closed = True
        self.outbox.close()
        self.marks.clear()
        self.ending = False
        for timer in (self.heartbeat_timer, self.stall_timer):
            if timer is not None:
                timer.cancel()
        self.heartbeat_timer = self.stall_timer = None
        inbuf_free(&self.inbuf)
        if self.large is not None:
            self.large.drop(self.hub.slicer)
        self._leave()
        self.hub.log.info("PROTOCOL(V2): [%s] connection closed", self.address)
        # These refer to each other; without a cut they would wait for the garbage collector.
        self.transport = self.outbox.transport = None
        if self.session is not None:
            self.session.forget()

    def pause_writing(self):
        """The socket takes no more."""
        if self.shaking_hands:
            return
        self.outbox.blocked = True
        self.blocked_ns = monotonic_ns()
        self._tell_channel(True)

    def resume_writing(self):
        """Everything that had been kept for the socket is gone."""
        if self.shaking_hands:
            return
        self.blocked_ns = 0
        self.outbox.unblock()
        if self.outbox.blocked:
            return      # by what was left; nothing is added to it
        if self.upgrade is not None:
            self.upgrade_now()
        if self.codec is not None and self.held & HELD_UNREAD:
            self._decode_later()
        self._release(HELD_UNREAD)
        self._tell_channel(False)

    def _tell_channel(self, bint blocked):
        if self.session is None:
            return
        self.session.blocked = blocked
        if self.session.channel is not None:
            self.session.channel.update(self.session)
            if not blocked:
                self.hub.broker.clock.refresh()
                self.session.channel.pump()

    # ------------------------------------------------------------------ commands

    cdef Py_ssize_t _consume(self, const char *c_from, Py_ssize_t length) except -1:
        """Runs the commands in these bytes until the slice is over; how many bytes are done with."""
        cdef Parser parser = self.parser
        cdef const char *c_at = c_from
        cdef const char *c_end = c_from + length
        cdef int event, outcome, steps = STEPS
        cdef Py_ssize_t used
        cdef Topic topic
        if self._batch_is_open():
            c_at += self._go_on_batch(c_at)
            if self.held & HELD_INPUT:
                return c_at - c_from
        if self.session is None:
            c_at += self._greet(c_at, length)
            if self.session is None:
                return c_at - c_from
        while (c_at < c_end or self.arrived) and not self.closing:
            if self.gathering:
                event = self.large.gather(parser, c_at, c_end - c_at, &used)
                c_at += used
                self.arrived = False
            else:
                event = parser.next(c_at, c_end)
                if event == PARSE_MORE and LargeBody.wants(parser, c_end - c_at):
                    used = self._begin_gathering(c_at, c_end - c_at)
                    c_at += used
                    if used:
                        continue
            if event == PARSE_MORE:
                break
            if event == PARSE_LINE:
                if not self._act(run_line(self.session, parser)):
                    break
                if parser.state != AT_LINE:
                    continue
            elif event == PARSE_BODY:
                topic = self.session.topic
                if self.gathering:
                    self.gathering = False
                    outcome = run_gathered(self.session, parser, self.large)
                    self.gathered = outcome == GOES_ON
                else:
                    outcome = run_body(self.session, parser)
                    if outcome == GOES_ON:
                        self.batch_at = self.session.batch.c_at - c_at
                if outcome == GOES_ON:
                    self._hold_slice()
                    break
                if not self._act(outcome):
                    if self.upgrade is not None:
                        c_at += parser.used
                    break
                if self.session.topic is not topic:
                    steps = 0       # it was looked up, or even made
                    topic = self.session.topic
                if topic is not None and (not topic.direct or topic.commit.is_full()) and topic.holds(self):
                    c_at += parser.used
                    self.began_ns = 0
                    self._hold(HELD_BEHIND)
                    break
                if topic is not None:
                    steps -= topic.fan_count
            elif event == PARSE_LINE_TOO_LONG:
                self._end()
                break
            else:
                self._act(refuse(self.session, parser, event))
                break
            c_at += parser.used
            self.began_ns = 0
            steps -= 1
            if steps <= 0:
                if c_at < c_end and self.hub.slicer.over():
                    self._hold_slice()
                    break
                steps = STEPS
        return c_at - c_from

    cdef Py_ssize_t _begin_gathering(self, const char *c_at, Py_ssize_t have) except -1:
        """The body that has begun to come goes into messages; how many bytes are done with, 0: it does not."""
        cdef Py_ssize_t used
        if self.session.guard is not None and self.parser.command.kind == CMD_PUB:
            return 0    # whether it may is asked once its body is there, with its line
        if self.large is None:
            self.large = LargeBody.__new__(LargeBody)
        used = self.large.begin(self.parser, c_at)
        if used < 0:
            return 0    # gathered here instead, or refused for the same reason
        self.gathering = True
        return used

    cdef bint _batch_is_open(self) noexcept:
        """Whether a multi-publish is published in part."""
        return self.batch_at != 0 or self.gathered

    cdef Py_ssize_t _go_on_batch(self, const char *c_from) except -1:
        """Goes on with a multi-publish that begins there, or is gathered; how many bytes are done with."""
        cdef int outcome
        cdef bint gathered = self.gathered
        if not gathered:
            self.session.batch.c_at = c_from + self.batch_at
        outcome = go_on_mpub(self.session, self.parser)
        if outcome == GOES_ON:
            if not gathered:
                self.batch_at = self.session.batch.c_at - c_from
            self._hold_slice()
            return 0
        self.batch_at = 0
        self.gathered = False
        self.began_ns = 0
        self._act(outcome)
        if not self.closing and self.session.topic.holds(self):
            self._hold(HELD_BEHIND)
            self._hold_slice()      # what follows is run once both are over
        return 0 if gathered else self.parser.used

    cdef int _hold_slice(self) except -1:
        """The slice is over: what is left of the input goes on in the next one."""
        if self._batch_is_open() and self.session.batch.result == PUT_DISK:
            # An error of what was published so far comes in the place of the answer.
            self._mark(self.session.batch_topic.commit)
            self.session.batch.result = PUT_MEMORY
        self._hold(HELD_SLICE)
        if self._batch_is_open() and self.session.batch_topic.commit.is_full():
            self.session.batch_topic.commit.block(self)
        else:
            self.hub.slicer.add(self)
        return 0

    cdef bint run_slice(self) noexcept:
        if self.closing or self.held & (HELD_WAITING | HELD_BEHIND):
            return False
        self.held &= ~HELD_SLICE
        try:
            self._run_kept()
        except BaseException as error:
            self.broke(error)
        return False

    cdef int _run_kept(self) except -1:
        """Runs the commands that are kept in inbuf. Nothing is read before that is done."""
        self.hub.broker.clock.refresh()
        # The client could not be heard meanwhile.
        self.heard_ns = self.hub.broker.clock.monotonic
        inbuf_drop(&self.inbuf, self._consume(self.inbuf.data, self.inbuf.length))
        self._after_input()
        if self.codec is not None and not self.held & HELD_INPUT:
            self._decode_later()
        if not self.held and not self.closing:
            self.transport.resume_reading()
        return 0

    cdef void publish_on(self) noexcept:
        """The topic that was published to has caught up, or some of the way."""
        if self.held & HELD_BEHIND:
            self.held &= ~HELD_BEHIND
            self.held |= HELD_SLICE
            self.hub.slicer.add(self)

    cdef Py_ssize_t _greet(self, const char *c_from, Py_ssize_t length) except -1:
        """The first four bytes say which protocol the client speaks."""
        if length < MAGIC_BYTES:
            return 0
        magic = c_from[:MAGIC_BYTES]
        self.hub.log.info("CLIENT(%s): desired protocol magic '%s'", self.address, magic.decode("latin-1"))
        if memcmp(c_from, b"  V2", MAGIC_BYTES) != 0:
            self.hub.log.error("client(%s) bad protocol magic '%s'", self.address, magic.decode("latin-1"))
            self._say(FRAME_ERROR, b"E_BAD_PROTOCOL")
            self._end()
            return length
        self.session = Session(self.hub.broker, self.hub.limits, self, self.hub.settings.now, self.hub.log,
                               self.outbox, self.address)
        if self.hub.authority is not None:
            self.session.guard = Guard(self.hub.authority, self.hub.settings.now.auth_grace, self.session)
        self.begin_heartbeats()
        self.began_ns = 0
        return MAGIC_BYTES

    cdef bint _act(self, int outcome) except -1:
        if outcome == DONE or outcome == WANTS_BODY:
            return True
        if outcome == SPILLED:
            self._mark(self.session.topic.commit)
            outcome = ANSWER_OK
        if outcome == ANSWER_OK:
            self.outbox.reply(FRAME_RESPONSE, b"OK", 2)
            return True
        if outcome == ANSWER or outcome == UPGRADE:
            self._say(FRAME_RESPONSE, self.session.error)
            if outcome == ANSWER:
                return True
            self._begin_upgrade()
            return False
        if outcome == WAITS:
            self.began_ns = 0
            self._hold(HELD_WAITING)
            return False
        self.hub.complain(self, self.session.error)
        self._say(FRAME_ERROR, self.session.error)
        if outcome == FAILED:
            return True
        self._end()
        return False

    def go_on(self):
        """What a command has waited for is there: it and those behind it are run."""
        if self.closing or not self.held & HELD_WAITING:
            return
        self.held &= ~HELD_WAITING
        self.hub.slicer.begin(monotonic_ns())
        try:
            if not self.held & HELD_INPUT:
                self._run_kept()
        except BaseException as error:
            self.broke(error)

    cdef void _say(self, int frame_type, bytes text) noexcept:
        self.outbox.reply(frame_type, text, len(text))

    # ------------------------------------------------------------------ TLS and compression

    cdef void _begin_upgrade(self) noexcept:
        """Nothing more is read in the clear. What was read goes first, so the rest waits for the end of this turn."""
        self.upgrade = self.session.upgrade
        self.session.upgrade = None
        self.detour = True
        self._hold(HELD_UPGRADE)
        self.hub.loop.call_soon(self.upgrade_now)

    def upgrade_now(self):
        """The reply to IDENTIFY leaves as it is; then comes TLS, then, inside, compression."""
        if self.closing or self.shaking_hands or self.upgrade is None:
            return
        try:
            self._upgrade()
        except BaseException as error:
            self.broke(error)

    def _upgrade(self):
        self.outbox.flush()
        if self.marks:
            return      # _settle_marks comes back to this: replies before it wait for the disk
        if self.outbox.blocked:
            return      # resume_writing comes back to this
        if not self.upgrade.tls:
            self._compress()
            return
        self.hub.log.info("PROTOCOL(V2): [%s] upgrading connection to TLS", self.address)
        # What stood behind IDENTIFY came in the clear and counts for nothing.
        inbuf_free(&self.inbuf)
        if not self.hub.connection_limits.begin_handshake(self.host):
            self.transport.abort()
            return
        self.outbox.blocked = self.shaking_hands = True
        upgrade.start_tls(self.hub.loop, self, self.transport, self.hub.tls)

    def tls_done(self, transport):
        """The handshake is through."""
        self.hub.connection_limits.end_handshake()
        if self.closing:
            self.connection_lost(None)
            transport.abort()
            return
        self.transport = self.outbox.transport = transport
        self.outbox.fd = -1
        self.outbox.blocked = False
        self.held = 0
        self.session.tls = upgrade.describe(transport.get_extra_info("ssl_object"))
        self.session.locked = False
        self._say(FRAME_RESPONSE, b"OK")
        self.outbox.flush()
        self._compress()

    def tls_failed(self, error):
        """The handshake has failed, or the connection has gone meanwhile."""
        transport = self.transport
        self.hub.connection_limits.end_handshake()
        self.hub.log.error("[%s] - E_IDENTIFY_FAILED IDENTIFY failed TLS handshake - %s", self.address,
                           handshake_error(error))
        # The transport tells TLS of its end, and TLS only tells us once a handshake has succeeded.
        self.connection_lost(error)
        if transport is not None:
            transport.abort()

    def _compress(self):
        """The last part of an upgrade: the codec, if one is wanted. From now on input is read again."""
        wanted = self.upgrade
        self.upgrade = None
        self.shaking_hands = False
        rest = self.inbuf.data[:self.inbuf.length]
        inbuf_free(&self.inbuf)
        if wanted.codec:
            self.hub.log.info("PROTOCOL(V2): [%s] upgrading connection to %s", self.address, wanted.codec)
            self.codec = self.outbox.codec = upgrade.new_codec(wanted)
            self.session.compression = wanted.codec
            self._say(FRAME_RESPONSE, b"OK")
        if wanted.tls:
            # Not 0: at that, TLS would report a full buffer with nothing in it.
            self.transport.set_write_buffer_limits(high=1, low=0)
        self.detour = self.codec is not None
        self._release(HELD_UPGRADE)
        self._take_again(rest)

    def _take_again(self, bytes rest not None):
        """Bytes that came during an upgrade."""
        cdef const char *c_rest = rest
        cdef Py_ssize_t at = 0
        cdef Py_ssize_t length
        while at < len(rest) and not self.closing:
            length = min(len(rest) - at, RECEIVE_BYTES)
            memcpy(self.hub.area + HEADROOM, c_rest + at, <size_t> length)
            self.buffer_updated(length)
            at += length

    cdef int _take_detour(self, Py_ssize_t length) except -1:
        if self.closing:
            return 0
        if self.upgrade is not None:
            if inbuf_append(&self.inbuf, self.hub.area + HEADROOM, length) < 0:
                self._end()
            return 0
        self.codec.feed(self.hub.area + HEADROOM, length)
        return self._decode()

    cdef int _decode(self) except -1:
        """Runs what the codec can give, as much as one read at most; nothing is read before the rest of it is done."""
        cdef char *c_to = self.hub.area + HEADROOM
        cdef Py_ssize_t left = RECEIVE_BYTES
        cdef Py_ssize_t length
        while left > 0 and not self.closing and not self.held & (HELD_UNREAD | HELD_INPUT):
            try:
                length = self.codec.decode(c_to)
            except CodecError as error:
                self._act(self.session.fail(b"E_INVALID " + str(error).encode()))
                return 0
            if length == 0:
                break
            self._take(length)
            left -= length
        if left <= 0:
            self._decode_later()
            return 0
        self._release(HELD_DECODING)
        if self.codec.ended and not self.held:
            self.eof_received()
        return 0

    def _decode_later(self):
        self._hold(HELD_DECODING)
        self.hub.loop.call_soon(self.decode_on)

    def decode_on(self):
        """Goes on with what was read in an earlier turn."""
        if not self.closing:
            try:
                self._decode()
            except BaseException as error:
                self.broke(error)

    # ------------------------------------------------------------------ replies that depend on the disk

    cdef int _mark(self, Commit commit) except -1:
        """The next reply holds only once what this commit is collecting is written."""
        cdef Mark mark
        if self.marks:
            mark = self.marks[len(self.marks) - 1]
            if mark.commit is commit and mark.serial == commit.serial:
                return 0
        mark = Mark.__new__(Mark)
        mark.commit = commit
        mark.serial = commit.serial
        mark.at = self.outbox.end()
        mark.kind = self.parser.command.kind
        if not self.marks:
            self.outbox.hold = mark.at
        self.marks.append(mark)
        commit.wait(self)
        return 0

    cdef void commit_ended(self, Commit commit, int error) noexcept:
        cdef Mark mark
        for mark in self.marks:
            if mark.commit is commit and not mark.settled:
                mark.settled = True
                mark.error = error
                break
        if self.marks:
            self._settle_marks()

    cdef void _settle_marks(self) noexcept:
        """Replies whose commits have ended leave, or give way to an error."""
        cdef Mark mark
        while self.marks:
            mark = self.marks[0]
            if not mark.settled:
                break
            self.marks.popleft()
            if mark.error and not self.outbox.closed:
                self.marks.clear()
                self.outbox.hold = -1
                self.outbox.cut(mark.at)
                name = MARK_NAMES[mark.kind]
                text = b"E_%b_FAILED %b failed %b" % (name, name, os.strerror(mark.error).encode())
                self.hub.complain(self, text)
                self._say(FRAME_ERROR, text)
                self._end()
                return
        if self.marks:
            mark = self.marks[0]
            self.outbox.hold = mark.at
        else:
            self.outbox.hold = -1
        self.outbox.unhold()
        if self.marks:
            return
        if self.ending:
            self._finish()
        elif self.upgrade is not None:
            self.hub.loop.call_soon(self.upgrade_now)

    # ------------------------------------------------------------------ time

    def begin_heartbeats(self):
        """Their pace is known: before IDENTIFY the default, then that of the first one."""
        cdef int64_t pace_ms = self.session.pace_ms
        self.beat_ns = monotonic_ns() + pace_ms * 1000000 if pace_ms > 0 else 0
        self.watch_heart()

    def watch_heart(self):
        """Calls beat() when a heartbeat is due, or the client may have been silent for too long."""
        cdef int64_t now = monotonic_ns()
        cdef int64_t watch_ns = now + self.session.heartbeat_ms * 1000000
        if self.heartbeat_timer is not None:
            self.heartbeat_timer.cancel()
            self.heartbeat_timer = None
        if self.session.heartbeat_ms <= 0:
            watch_ns = self.beat_ns
        elif self.beat_ns:
            watch_ns = min(watch_ns, self.beat_ns)
        if watch_ns:
            self.heartbeat_timer = self.hub.loop.call_later(max(0, watch_ns - now) / 1e9, self.beat)

    def beat(self):
        """A heartbeat is due, or the client has been silent, or deaf, for too long."""
        cdef int64_t now = monotonic_ns()
        cdef int64_t interval_ns = self.session.heartbeat_ms * 1000000
        self.heartbeat_timer = None
        if self.closing:
            return
        # A handshake has a deadline of its own.
        if self.upgrade is None and not self._is_alive(now, interval_ns):
            return
        if self.beat_ns and now >= self.beat_ns - 1000000:
            self.beat_ns = now + self.session.pace_ms * 1000000
            if self.upgrade is None:
                self._say(FRAME_RESPONSE, b"_heartbeat_")
        self.watch_heart()

    cdef bint _is_alive(self, int64_t now, int64_t interval_ns) except -1:
        """Whether the client is heard and listens; if not, the connection is cut, or looked at once more."""
        cdef bint silent = not self.held & HELD_INPUT and now - self.heard_ns >= 2 * interval_ns - 5000000
        if interval_ns <= 0:
            return True
        if silent and not self.suspect:
            # What it has sent may lie unread, where the loop was busy: one more read before it is given up.
            self.suspect = True
            self.heartbeat_timer = self.hub.loop.call_later(SUSPECT_MS / 1000.0, self.beat)
            return False
        self.suspect = False
        if silent:
            self.hub.log.error("client(%s) - silent for two heartbeats", self.address)
        elif self.blocked_ns and now - self.blocked_ns >= interval_ns:
            self.hub.log.error("client(%s) - takes nothing from its socket", self.address)
        else:
            return True
        self.transport.abort()
        return False

    cdef void _watch_stall(self) noexcept:
        """A begun command, or the magic, must come whole before its deadline. At most one timer runs."""
        if self.began_ns == 0:
            self.began_ns = self.heard_ns
        if self.stall_timer is None and not self.closing:
            self.stall_timer = self.hub.loop.call_later(self.hub.limits.stall_ns / 1e9, self.check_stall)

    def check_stall(self):
        """Closes the connection if what it had begun is still not whole."""
        cdef int64_t left_ns
        self.stall_timer = None
        if (self.closing or self.held & HELD_INPUT
                or (self.session is not None and self.inbuf.length == 0 and not self.gathering)):
            return
        left_ns = self.began_ns + self.hub.limits.stall_ns - monotonic_ns()
        if left_ns > 1000000:
            self.stall_timer = self.hub.loop.call_later(left_ns / 1e9, self.check_stall)
            return
        self.hub.log.error("client(%s) - stalled within a command", self.address)
        try:
            if self.session is not None:
                self._cut_short()
        finally:
            self._end()

    # ------------------------------------------------------------------ the end

    cdef void _end(self) noexcept:
        self.close()

    def close(self):
        """Sends what was collected, once the commits it depends on have ended, then closes. Nothing more is read."""
        if not self.closing and self._batch_is_open():
            self._publish_rest()
        if self.closing and not self.ending:
            return
        if not self.closing:
            self.closing = self.detour = True
            self._leave()
        self.ending = True
        if not self.marks:
            self._finish()

    cdef void _publish_rest(self) noexcept:
        """A stop comes amid a multi-publish: none is left published in part."""
        cdef int outcome = GOES_ON
        if not self.gathered:
            self.session.batch.c_at = self.inbuf.data + self.batch_at
        try:
            while outcome == GOES_ON:
                outcome = go_on_mpub(self.session, self.parser)
            self.batch_at = 0
            self.gathered = False
            self._act(outcome)
        except BaseException as error:
            self.broke(error)

    def _finish(self):
        self.ending = False
        self.outbox.flush()
        if self.shaking_hands:
            self.outbox.closed = True   # nothing in the clear amid a handshake
        self.outbox.close()
        self.transport.close()
        if self.unsent() or (self.session is not None and self.session.tls is not None):
            # Under TLS the client has to answer the end, too.
            if self.stall_timer is not None:
                self.stall_timer.cancel()
            self.stall_timer = self.hub.loop.call_later(GIVE_UP_S, self.give_up, self.unsent())

    def arrives(self, double seconds) -> bool:
        """Whether the client came within the last seconds and consumes nothing: it may be about to publish and go."""
        return (not self.closing and monotonic_ns() - self.made_ns < <int64_t> (seconds * 1e9)
                and (self.session is None or self.session.channel is None))

    def unsent(self) -> int:
        """Bytes that wait for the client's socket, or for the commit that they depend on."""
        return self.transport.get_write_buffer_size() + (0 if self.outbox.closed else self.outbox.bytes())

    def give_up(self, Py_ssize_t before):
        """Ends a connection that is closing and whose client has taken none of the bytes that were left before."""
        cdef Py_ssize_t left = self.unsent()
        if left < before:
            self.stall_timer = self.hub.loop.call_later(GIVE_UP_S, self.give_up, left)
            return
        self.stall_timer = None
        self.hub.log.warn("client(%s) - takes nothing while it is closed, %d bytes are dropped", self.address, left)
        self.transport.abort()

    def broke(self, error):
        """What was raised here has left the connection in an unknown state, so it ends."""
        self._log_raised(error)
        if self.transport is not None:
            self.transport.abort()

    def _log_raised(self, error):
        self.hub.log.error("[%s] - connection failed: %s", self.address, "".join(traceback.format_exception(error)))

    def _leave(self):
        """The channel forgets this client; what is in flight to it waits for its time-out."""
        if self.session is None:
            return
        self.session.closed = True
        try:
            if self.session.guard is not None:
                self.session.guard.close()
            if self.session.channel is not None:
                self.session.channel.remove_client(self.session)
        except BaseException as error:
            # The connection ends all the same.
            self._log_raised(error)
