"""The loop's protocol for a V2 client. It acts on what commands return, and knows nothing of topics but through them.

The object is the loop's BufferedProtocol and the buffer itself, so a read makes no Python object.
"""

cimport cython
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy
from cpython.buffer cimport PyBuffer_FillInfo

from nsqc.store.clock cimport monotonic_ns
from nsqc.tcp.commands cimport (ANSWER, ANSWER_OK, DONE, FAILED, SPILLED, UPGRADE, WAITS, WANTS_BODY, cut_short, refuse,
                                run_body, run_line)
from nsqc.tcp.guard cimport Guard
from nsqc.wire.const cimport FRAME_ERROR, FRAME_RESPONSE, MAGIC_BYTES
from nsqc.wire.inbuf cimport inbuf_append, inbuf_drop, inbuf_free
from nsqc.wire.parser cimport (AT_LINE, CMD_DPUB, CMD_MPUB, CMD_PUB, PARSE_BODY, PARSE_LINE, PARSE_LINE_TOO_LONG,
                               PARSE_MORE)

import os

from nsqc.gate import handshake_error, host_of
from nsqc.sockets import peer_text
from nsqc.tcp import upgrade
from nsqc.wire.codec import CodecError

cdef enum:
    RECEIVE_BYTES = 262144
    HEADROOM = 65536

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

    def __init__(self, Broker broker not None, settings, log, loop, gate, tls=None):
        self.gate = gate
        self.tls = tls
        self.broker = broker
        self.settings = settings
        self.log = log
        self.loop = loop
        self.turn = Turn(loop, broker.commits, settings.now.output_buffer_flush == "timeout")
        self.limits = Limits(settings.now)
        settings.on_change(self._settings_changed)
        self.connections = {}

    def __dealloc__(self):
        free(self.area)

    def _settings_changed(self, options):
        """For connections to come; those that are open keep their limits, which they may have been told."""
        self.limits = Limits(options)

    def sessions(self) -> list:
        """The sessions of all clients that have greeted."""
        return [session for session in map(session_of, self.connections) if session is not None]

    def close(self):
        """Flushes and closes all connections."""
        for connection in list(self.connections):
            connection.close()


def session_of(Connection connection not None):
    """A connection's Session; None before its magic has come."""
    return connection.session


@cython.final
cdef class Connection:
    """One client connection, from accept to close."""

    def __init__(self, Hub hub not None):
        self.hub = hub

    def __dealloc__(self):
        inbuf_free(&self.inbuf)

    # ------------------------------------------------------------------ called by the loop

    def connection_made(self, transport):
        """A client has connected."""
        host = host_of(transport.get_extra_info("peername"))
        if not self.hub.gate.enter(host):
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
        self.parser = Parser.new(options.max_msg_size)
        self.hub.connections[self] = None
        self.heard_ns = self.began_ns = monotonic_ns()
        self._watch_stall()
        self.hub.log.info("TCP: new client(%s)", self.address)

    def get_buffer(self, sizehint):
        """Where the next bytes go: the shared area, through this object's buffer interface."""
        return self

    def __len__(self):
        return RECEIVE_BYTES    # TLS asks for the size of its buffer

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.hub.area + HEADROOM, RECEIVE_BYTES, 0, flags)

    def buffer_updated(self, Py_ssize_t length):
        """Bytes have come."""
        if self.detour:
            self._take_detour(length)
        else:
            self._take(length)

    cdef int _take(self, Py_ssize_t length) except -1:
        """Runs what lies in the area, behind what is kept."""
        cdef const char *c_from = self.hub.area + HEADROOM
        cdef Py_ssize_t kept = self.inbuf.length
        cdef Py_ssize_t used
        self.hub.broker.clock.refresh()
        self.heard_ns = self.hub.broker.clock.monotonic
        if self.held & HELD_WAITING:
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
        if self.inbuf.length and not self.held & HELD_WAITING:
            self._watch_stall()
        if self.session is not None and self.session.pump_due:
            self.session.pump_due = False
            self.session.channel.pump()
        if (self.outbox.blocked and self.outbox.buf.length > self.hub.limits.max_buffered_bytes
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
        if not self.closing and self.session is not None and not self.held & HELD_WAITING:
            if self.codec is not None and self.codec.cut_short():
                self._act(self.session.fail(b"E_INVALID %b stream is cut short" % self.codec.name.encode()))
            else:
                self._act(cut_short(self.session, self.parser, self.inbuf.length))
        self.close()
        return True

    def connection_lost(self, error):
        """The connection is gone."""
        self.closing = self.detour = True
        if self.host is None:
            return
        self.hub.gate.leave(self.host)
        self.host = None
        self.hub.connections.pop(self, None)
        self.outbox.closed = True
        self.outbox.close()
        for timer in (self.heartbeat_timer, self.stall_timer):
            if timer is not None:
                timer.cancel()
        self.heartbeat_timer = self.stall_timer = None
        inbuf_free(&self.inbuf)
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
        """Runs the commands in these bytes; how many bytes are done with."""
        cdef Parser parser = self.parser
        cdef const char *c_at = c_from
        cdef const char *c_end = c_from + length
        cdef int event
        if self.session is None:
            c_at += self._greet(c_at, length)
            if self.session is None:
                return c_at - c_from
        while c_at < c_end and not self.closing:
            event = parser.next(c_at, c_end)
            if event == PARSE_MORE:
                break
            if event == PARSE_LINE:
                if not self._act(run_line(self.session, parser)):
                    break
                if parser.state != AT_LINE:
                    continue
            elif event == PARSE_BODY:
                if not self._act(run_body(self.session, parser)):
                    if self.upgrade is not None:
                        c_at += parser.used
                    break
            elif event == PARSE_LINE_TOO_LONG:
                self._end()
                break
            else:
                self._act(refuse(self.session, parser, event))
                break
            c_at += parser.used
            self.began_ns = 0
        return c_at - c_from

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
        self.restart_heartbeats()
        self.began_ns = 0
        return MAGIC_BYTES

    cdef bint _act(self, int outcome) noexcept:
        if outcome == DONE or outcome == WANTS_BODY:
            return True
        if outcome == SPILLED:
            self._mark()
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
        self.hub.log.error("[%s] - %s", self.address, self.session.error.decode("utf-8", "backslashreplace"))
        self._say(FRAME_ERROR, self.session.error)
        if outcome == FAILED:
            return True
        self._end()
        return False

    def go_on(self):
        """What a command has waited for is there: it and those behind it are run."""
        if self.closing or not self.held & HELD_WAITING:
            return
        # Nothing is read before the commands behind it have been run.
        self.held &= ~HELD_WAITING
        self.hub.broker.clock.refresh()
        # The client could not be heard meanwhile.
        self.heard_ns = self.hub.broker.clock.monotonic
        inbuf_drop(&self.inbuf, self._consume(self.inbuf.data, self.inbuf.length))
        self._after_input()
        if self.codec is not None and not self.held & HELD_WAITING:
            self._decode_later()
        if not self.held and not self.closing:
            self.transport.resume_reading()

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
        self.outbox.flush()
        if self.outbox.blocked:
            return      # resume_writing comes back to this
        if not self.upgrade.tls:
            self._compress()
            return
        self.hub.log.info("PROTOCOL(V2): [%s] upgrading connection to TLS", self.address)
        # What stood behind IDENTIFY came in the clear and counts for nothing.
        inbuf_free(&self.inbuf)
        if not self.hub.gate.begin_handshake(self.host):
            self.transport.abort()
            return
        self.outbox.blocked = self.shaking_hands = True
        upgrade.start_tls(self.hub.loop, self, self.transport, self.hub.tls)

    def tls_done(self, transport):
        """The handshake is through."""
        self.hub.gate.end_handshake()
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
        self.hub.gate.end_handshake()
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
        while left > 0 and not self.closing and not self.held & (HELD_UNREAD | HELD_WAITING):
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
            self._decode()

    # ------------------------------------------------------------------ replies that depend on the disk

    cdef void _mark(self) noexcept:
        """The next reply holds only once the turn's commit has succeeded."""
        if self.marked:
            if self.mark_topic is self.session.topic:
                return
            self.hub.turn.settle()      # so that a mark is about one topic; its commit is this connection's matter
        self.marked = True
        self.mark_at = self.outbox.buf.length
        self.mark_kind = self.parser.command.kind
        self.mark_topic = self.session.topic
        self.hub.turn.marked.append(self)

    def settle_mark(self, int failed):
        """The commit is through: the marked replies stand, or give way to an error."""
        cdef int error = self.mark_topic.failed_in(self.hub.turn.commits.serial) if failed else 0
        self.marked = False
        self.mark_topic = None
        if error == 0 or self.outbox.closed:
            return
        self.outbox.buf.length = self.mark_at
        name = MARK_NAMES[self.mark_kind]
        text = b"E_%b_FAILED %b failed %b" % (name, name, os.strerror(error).encode())
        self.hub.log.error("[%s] - %s", self.address, text.decode())
        self._say(FRAME_ERROR, text)
        self._end()

    # ------------------------------------------------------------------ time

    def restart_heartbeats(self):
        """The heartbeat interval is new."""
        if self.heartbeat_timer is not None:
            self.heartbeat_timer.cancel()
            self.heartbeat_timer = None
        if self.session.heartbeat_ms > 0:
            self.heartbeat_timer = self.hub.loop.call_later(self.session.heartbeat_ms / 1000.0, self.beat)

    def beat(self):
        """A heartbeat is due, or the client has been silent, or deaf, for too long."""
        cdef int64_t now = monotonic_ns()
        cdef int64_t interval_ns = self.session.heartbeat_ms * 1000000
        self.heartbeat_timer = None
        if self.closing:
            return
        if self.upgrade is not None:
            # A handshake has a deadline of its own.
            self.restart_heartbeats()
            return
        if not self.held & HELD_WAITING and now - self.heard_ns >= 2 * interval_ns - 5000000:
            self.hub.log.error("client(%s) - silent for two heartbeats", self.address)
            self.transport.abort()
            return
        if self.blocked_ns and now - self.blocked_ns >= interval_ns:
            self.hub.log.error("client(%s) - takes nothing from its socket", self.address)
            self.transport.abort()
            return
        self._say(FRAME_RESPONSE, b"_heartbeat_")
        self.restart_heartbeats()

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
        if (self.closing or self.held & HELD_WAITING
                or (self.session is not None and self.inbuf.length == 0)):
            return
        left_ns = self.began_ns + self.hub.limits.stall_ns - monotonic_ns()
        if left_ns > 1000000:
            self.stall_timer = self.hub.loop.call_later(left_ns / 1e9, self.check_stall)
            return
        self.hub.log.error("client(%s) - stalled within a command", self.address)
        if self.session is not None:
            self._act(cut_short(self.session, self.parser, self.inbuf.length))
        self._end()

    # ------------------------------------------------------------------ the end

    cdef void _end(self) noexcept:
        self.close()

    def close(self):
        """Sends what was collected, then closes. Nothing more is read."""
        if self.closing:
            return
        self.closing = self.detour = True
        self._leave()
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

    def unsent(self) -> int:
        """Bytes that wait for the client's socket."""
        return self.transport.get_write_buffer_size()

    def give_up(self, Py_ssize_t before):
        """Ends a connection that is closing and whose client has taken none of the bytes that were left before."""
        cdef Py_ssize_t left = self.unsent()
        if left < before:
            self.stall_timer = self.hub.loop.call_later(GIVE_UP_S, self.give_up, left)
            return
        self.stall_timer = None
        self.hub.log.warn("client(%s) - takes nothing while it is closed, %d bytes are dropped", self.address, left)
        self.transport.abort()

    def _leave(self):
        """The channel forgets this client; what is in flight to it waits for its time-out."""
        if self.session is not None:
            self.session.closed = True
            if self.session.guard is not None:
                self.session.guard.close()
            if self.session.channel is not None:
                self.session.channel.remove_client(self.session)
