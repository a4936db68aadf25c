"""A client's connection: the protocol of the loop, deadlines, the end."""

cimport cython
import traceback
from libc.stdint cimport int64_t
from libc.string cimport memcmp

from nsqc.broker import refusals
from nsqc.broker.topic cimport GATHERED, OpenBatch, Topic
from nsqc.loop.uv cimport QUICK_NS, span_over
from nsqc.net.address import peer_text
from nsqc.net.listener import Pace, host_of
from nsqc.store.backlog cimport PUT_DISK, PUT_MEMORY
from nsqc.store.memory cimport monotonic_ns
from nsqc.store.message cimport inflight_expect
from nsqc.store.work cimport STEPS, Commit, LoopWork
from nsqc.tcp.commands cimport (continue_mpub, cut_short, end_wait, refusal_of, refuse, run_body,
                                run_gathered, run_line, wait_for_room, write_failed)
from nsqc.tcp.intake cimport (HELD_INPUT, HELD_PACE, HELD_SLICE, HELD_UNREAD, HELD_WAITING, Heartbeat, Hub, Intake,
                              LargeBody, Upgrade)
from nsqc.tcp.outbox cimport Body, Mark, Marks, Outbox
from nsqc.tcp.session cimport (DONE, ERROR, OK, OK_ON_COMMIT, OK_ON_RUNNING, REPLY, SLICE_OVER, UPGRADE, WAITS,
                               WANTS_BODY, Guard, Link, Session)
from nsqc.wire.const cimport FRAME_ERROR, FRAME_RESPONSE, MAGIC_BYTES
from nsqc.wire.parser cimport (AT_LINE, CMD_FIN, CMD_PUB, PARSE_BODY, PARSE_LINE, PARSE_LINE_TOO_LONG, PARSE_MORE,
                               Parser, command_publishes)


# ====================================================================== connection
# One client connection as the loop sees it. Its parts: intake (bytes in), parser, session (the client's state), outbox
# (bytes out), marks (replies that wait for the disk), heartbeat, and a running upgrade. This class runs commands and
# acts on their outcomes; it is the loop's BufferedProtocol, which reads into its intake.

cdef enum:
    NS_PER_MS = 1000000
    FIN_BYTES = 21          # of a FIN with its line feed
    FIN_ID_AT = 4
    # Until IDENTIFY changes it; nsqd's default.
    OUTPUT_BUFFER_BYTES = 16384


# A client that closes properly accepts the last bytes within moments, and a network that has lost packets resends them
# within one or two seconds. Longer silence only costs a descriptor.
GIVE_UP_S = 5.0


@cython.final
cdef class Connection(Link):
    """One client connection, from accept to close."""

    cdef Hub hub
    cdef Intake intake
    cdef int fd                         # of its socket
    cdef Outbox outbox
    cdef Marks marks
    cdef readonly Session session       # None until the magic has arrived
    cdef Heartbeat heartbeat            # likewise
    cdef Upgrade upgrade                # None: none is running
    cdef readonly str address
    cdef object host                    # key for the connection limits; None: not admitted
    cdef bint spoke                     # bytes have arrived: not just a probe
    cdef int64_t made_ns                # monotonic: when the client connected
    cdef int64_t began_ns               # monotonic: start of the incomplete command, or of the wait for the magic
    cdef object stall_timer
    cdef object pace                    # nsqc.net.listener.Pace; None until the client creates a topic or channel
    cdef object pace_timer              # ends a wait for --max-create-rate
    cdef bint ending                    # closes once all marks have settled

    def __init__(self, Hub hub not None):
        self.hub = hub

    # ------------------------------------------------------------------ called by the loop

    def connection_made(self, transport: BaseTransport):
        """A client has connected."""
        cdef int64_t now_ns = monotonic_ns()
        peer = transport.get_extra_info("peername")
        host = host_of(peer)
        options = self.hub.settings.now
        self.fd = transport.get_extra_info("socket").fileno()
        self.outbox = Outbox.new(self.hub.iteration, transport, self.fd,
                                 OUTPUT_BUFFER_BYTES, options.output_buffer_timeout // NS_PER_MS)
        self.intake = Intake.new(self, self.hub, self.outbox, Parser.new(options.message_limit), now_ns)
        self.marks = Marks.new(self.outbox)
        if not self.hub.connection_limits.enter(host):
            self.intake.close()
            self.intake.dispose()
            transport.abort()
            return
        self.host = host
        self.address = peer_text(peer)
        # Any output that the socket does not accept at once blocks the outbox until it is sent.
        transport.set_write_buffer_limits(high=0)
        self.hub.connections[self] = None
        if self.hub.slicer.unread is not None:
            self.hub.slicer.unread.add(self.fd)
        self.made_ns = self.began_ns = now_ns
        self._watch_stall()

    def __str__(self):
        topic = None if self.session is None else self.session.topic
        channel = None if self.session is None else self.session.channel
        if topic is not None:
            return f"client({self.address}), publishing to {topic}"
        return f"client({self.address})" + ("" if channel is None else f", consuming {channel}")

    def get_buffer(self, sizehint: int) -> bytearray:
        """Where the next bytes go: the shared area, or a large message, via the intake's buffer interface."""
        self.intake.lend()
        return self.intake

    def buffer_updated(self, Py_ssize_t length):
        """Bytes have arrived in that buffer."""
        cdef int64_t took_ns
        try:
            self.intake.updated(length)
        except BaseException as error:
            self.fail(error)
        if self.intake.ran:
            took_ns = monotonic_ns() - self.intake.heard_ns
            span_over(took_ns, b"commands of", self)
            if self.hub.slicer.unread is not None:
                # While it is held, nothing reads it.
                self.hub.slicer.unread.was_read(self.fd, QUICK_NS + 1 if self.intake.held else took_ns,
                                                self.session is not None and self.session.channel is None)

    def eof_received(self) -> bool:
        """The client sends no more: runs its commands, then closes the connection."""
        self.input_ended()
        return True

    def connection_lost(self, error: Exception | None):
        """The transport is gone."""
        self.lost(error)

    def pause_writing(self):
        """The socket is full."""
        if self._is_shaking_hands():
            return
        self.outbox.blocked = True
        if self.heartbeat is not None:
            self.heartbeat.blocked_ns = monotonic_ns()
        self._show_channel(True)

    def resume_writing(self):
        """The socket has accepted all output."""
        if self._is_shaking_hands():
            return
        if self.heartbeat is not None:
            self.heartbeat.blocked_ns = 0
        self.outbox.unblock()
        if self.outbox.blocked:
            return      # by the end of its output; nothing is added to that
        if self.upgrade is not None:
            self.upgrade.proceed()
        if self.intake.codec is not None and self.intake.held & HELD_UNREAD:
            self.intake.decode_later()
        self.intake.release(HELD_UNREAD)
        self._show_channel(False)

    def _show_channel(self, bint blocked):
        """A blocked client is not ready for messages."""
        if self.session is None or self.session.closed:
            return
        self.session.blocked = blocked
        if self.session.channel is not None:
            self.session.channel.update(self.session)
            if not blocked:
                self.hub.broker.clock.refresh()
                self.session.channel.pump()

    # ------------------------------------------------------------------ commands

    cdef Py_ssize_t consume(self, const char *c_from, Py_ssize_t length) except -1:
        """Runs the commands in these bytes until the slice is over; returns the number of bytes used."""
        cdef Intake intake = self.intake
        cdef Parser parser = intake.parser
        cdef const char *c_at = c_from
        cdef const char *c_end = c_from + length
        cdef int event, outcome, steps = STEPS
        cdef Py_ssize_t used
        cdef bint gathered
        cdef Topic topic
        if self._batch_is_open():
            c_at += self._continue_batch(c_at)
            if intake.held & HELD_INPUT:
                return c_at - c_from
        if self.session is None:
            c_at += self._greet(c_at, length)
            if self.session is None:
                return c_at - c_from
        while (c_at < c_end or intake.arrived) and not intake.closed:
            gathered = intake.gathering
            if gathered:
                event = intake.gather(c_at, c_end - c_at, &used)
                c_at += used
            else:
                event = parser.next(c_at, c_end)
                if (event == PARSE_MORE and LargeBody.wants(parser, c_end - c_at)
                        and (self.session.guard is None or self._may_gather())):
                    used = intake.begin_gathering(c_at, c_end - c_at, self.session.batch)
                    c_at += used
                    if used:
                        continue
            if event == PARSE_MORE:
                break
            if event == PARSE_LINE:
                if parser.command.kind == CMD_FIN and parser.used == FIN_BYTES and self.session.channel is not None:
                    inflight_expect(&self.session.channel.in_flight, c_at + FIN_ID_AT, c_end, FIN_BYTES)
                if not self._act(run_line(self.session, parser)):
                    break
                if parser.state != AT_LINE:
                    continue
            elif event == PARSE_BODY:
                topic = self.session.topic
                outcome = (run_gathered(self.session, parser, intake.large) if gathered
                           else run_body(self.session, parser))
                if outcome == SLICE_OVER:
                    self._hold_slice()
                    break
                if not self._act(outcome):
                    if self.upgrade is not None:
                        c_at += parser.used
                    break
                if self.session.topic is not topic:
                    steps = 0       # a lookup, or even a new topic
                    topic = self.session.topic
                if (topic is not None and (not topic.direct or topic.bounded or topic.commit.is_full())
                        and topic.holds(self)):
                    c_at += parser.used
                    self.began_ns = 0
                    intake.hold(HELD_SLICE)
                    break
                if topic is not None:
                    steps -= topic.fan_count
            elif event == PARSE_LINE_TOO_LONG:
                self.end()
                break
            else:
                self._act(refuse(self.session, parser, event))
                break
            c_at += parser.used
            self.began_ns = 0
            if (self.session.created or self.session.delay_s > 0) and self._must_wait():
                break
            steps -= 1
            if steps <= 0:
                if c_at < c_end and self.hub.slicer.over():
                    self._hold_slice()
                    break
                steps = STEPS
        return c_at - c_from

    cdef bint _may_gather(self) noexcept:
        """Whether an arriving body can go into messages. Not if a quota counts it, or if a PUB may need a permission
        check: that needs the whole command, with its line."""
        cdef Session session = self.session
        if self.intake.parser.command.kind != CMD_PUB:
            return not session.guard.metered
        return session.guard.passes(session.is_topic(self.intake.parser.command.args[1],
                                                     self.intake.parser.command.arg_bytes[1]),
                                    self.hub.broker.clock.monotonic)

    cdef void after_input(self) noexcept:
        if self.intake.closed:
            return
        if (self.intake.inbuf.length or self.intake.gathering) and not self.intake.held & HELD_INPUT:
            self._watch_stall()
        if self.session is not None and self.session.pump_due:
            self.session.pump_due = False
            self.session.channel.pump()
        if (self.outbox.blocked and self.outbox.unread_bytes() > self.hub.limits.max_buffered_bytes
                and not self.intake.held & HELD_UNREAD):
            self.intake.hold(HELD_UNREAD)

    cdef Py_ssize_t _greet(self, const char *c_from, Py_ssize_t length) except -1:
        """The first four bytes name the client's protocol."""
        if not self.spoke:
            self.spoke = True
            self.hub.log.info("TCP: new client(%s)", self.address)
        if length < MAGIC_BYTES:
            return 0
        magic = c_from[:MAGIC_BYTES]
        self.hub.log.info("CLIENT(%s): desired protocol magic '%s'", self.address, magic.decode("latin-1"))
        if memcmp(c_from, b"  V2", MAGIC_BYTES) != 0:
            self.hub.log.error("client(%s) bad protocol magic '%s'", self.address, magic.decode("latin-1"))
            self._say(FRAME_ERROR, b"E_BAD_PROTOCOL")
            self.end()
            return length
        session = Session(self.hub.broker, self.hub.limits, self, self.hub.settings.now, self.hub.log, self.outbox,
                          self.address)
        if self.hub.authority is not None:
            (<Session> session).guard = Guard(self.hub.authority, self.hub.settings.now.auth_grace, session,
                                              self.hub.log)
        (<Session> session).audit = self.hub.audit
        self.session = session
        self.heartbeat = Heartbeat.new(self.hub, session, self.outbox, self.intake)
        self.heartbeat.begin()
        self.began_ns = 0
        return MAGIC_BYTES

    cdef bint _act(self, int outcome) except -1:
        """outcome: of a command. False: do not run the next one now."""
        if outcome == DONE or outcome == WANTS_BODY:
            return True
        if outcome == OK_ON_COMMIT:
            self.marks.add(self.session.topic.commit, self.intake.parser.command.kind, self)
            outcome = OK
        if outcome == OK:
            self.outbox.reply(FRAME_RESPONSE, b"OK", 2)
            return True
        if outcome == OK_ON_RUNNING:
            self.marks.add_running(self.session.topic.commit, self.intake.parser.command.kind, self)
            self.outbox.reply(FRAME_RESPONSE, b"OK", 2)
            return True
        if outcome == REPLY or outcome == UPGRADE:
            self._say(FRAME_RESPONSE, self.session.reply)
            if outcome == REPLY:
                return True
            self.upgrade = Upgrade.new(self, self.hub, self.session, self.intake, self.outbox, self.marks, self.host)
            self.upgrade.begin()
            return False
        if outcome == WAITS:
            self.began_ns = 0
            self.intake.hold(HELD_WAITING)
            return False
        self.hub.complain(self.address, self.session.reply)
        self._count_refusal()
        self._say(FRAME_ERROR, self.session.reply)
        if outcome == ERROR:
            return True
        self.end()
        return False

    def _count_refusal(self):
        """Counts a publish that was refused before it reached its topic, which counts the others."""
        cdef int kind = self.intake.parser.command.kind
        if command_publishes(kind):
            reason = refusal_of(self.session.reply)
            if reason is not None:
                self.hub.broker.refused(reason)

    # ------------------------------------------------------------------ deferred commands

    cdef int _hold_slice(self) except -1:
        """The slice is over, or the batch waits for room: run() runs the rest of the input."""
        cdef OpenBatch batch = self.session.batch
        cdef Commit commit = batch.topic.commit if batch.open else None
        if commit is not None and batch.result == PUT_DISK:
            # If messages published so far cannot be written, that error replaces the answer.
            self.marks.add(commit, self.intake.parser.command.kind, self)
            batch.result = PUT_MEMORY
        self.intake.hold(HELD_SLICE)
        if self.session.awaits_room:
            wait_for_room(self.session, self)
        elif commit is not None and commit.is_full():
            commit.block(self)
        else:
            self.hub.slicer.add(self)
        return 0

    cdef bint run(self) noexcept:
        """Runs the rest of the input. With HELD_SLICE, exactly one waits to call this: the slicer, a full commit, or a
        topic that has to catch up or make room."""
        if self.intake.closed or self.intake.held & (HELD_WAITING | HELD_PACE):
            return False
        self.intake.run_now(HELD_SLICE)
        try:
            self.intake.run_kept()
        except BaseException as error:
            self.fail(error)
        return False

    cdef bint _must_wait(self) except -1:
        """Accounts for the client's topics, channels and messages; returns whether its input has to wait."""
        cdef int created = self.session.created
        cdef double wait_s = 0
        self.session.created = 0
        if created:
            if self.pace is None:
                self.pace = Pace()
            wait_s = self.pace.spend(created, self.hub.settings.now.max_create_rate, monotonic_ns() / 1e9)
            if wait_s > 0:
                self.hub.broker.creations_delayed += 1
        wait_s = max(wait_s, self.session.delay_s)
        self.session.delay_s = 0
        if wait_s <= 0:
            return False
        self.intake.hold(HELD_PACE)
        self.pace_timer = self.hub.loop.call_later(wait_s, self.create_on)
        return True

    def create_on(self):
        """The wait after creating or publishing is over."""
        self.pace_timer = None
        self.intake.run_later(HELD_PACE)
        self.hub.slicer.add(self)

    cdef void resume(self) noexcept:
        """Reruns the command that waited for an answer, and runs the following ones."""
        if self.intake.closed or not self.intake.held & HELD_WAITING:
            return
        self.intake.run_now(HELD_WAITING)
        self.hub.slicer.begin(monotonic_ns())
        try:
            if not self.intake.held & HELD_INPUT:
                self.intake.run_kept()
        except BaseException as error:
            self.fail(error)

    cdef Py_ssize_t _continue_batch(self, const char *c_from) except -1:
        """Publishes more of a multi-publish, which begins there unless it is gathered; returns the bytes used."""
        cdef int outcome
        cdef bint gathered = self.session.batch.source == GATHERED
        self.session.batch.c_data = c_from
        outcome = continue_mpub(self.session, self.intake.parser)
        if outcome == SLICE_OVER:
            self._hold_slice()
            return 0
        self.began_ns = 0
        self._act(outcome)
        if not self.intake.closed and self.session.topic.holds(self):
            self.intake.hold(HELD_SLICE)
        return 0 if gathered else self.intake.parser.used

    # ------------------------------------------------------------------ for the session and the upgrade

    cdef int heartbeats_agreed(self, bint first) except -1:
        return self.heartbeat.begin() if first else self.heartbeat.watch()

    cdef void say_ok(self) noexcept:
        self._say(FRAME_RESPONSE, b"OK")

    cdef void upgraded(self) noexcept:
        self.upgrade = None

    cdef int refuse_stream(self, bytes error) except -1:
        self._act(self.session.fail(error))
        return 0

    # ------------------------------------------------------------------ parts

    cdef void _say(self, int frame_type, bytes text) noexcept:
        self.outbox.reply(frame_type, text, len(text))

    cdef bint _is_shaking_hands(self) noexcept:
        return self.upgrade is not None and self.upgrade.shaking_hands

    # ------------------------------------------------------------------ multi-publishes

    cdef bint _batch_is_open(self) noexcept:
        """Whether a multi-publish has unpublished messages."""
        return self.session is not None and self.session.batch.open

    cdef int _publish_rest(self) noexcept:
        """The connection ends within a multi-publish: publishes the rest, so none is published in part. Returns its
        outcome; SLICE_OVER: not begun, since another client is publishing its id."""
        cdef int outcome = SLICE_OVER
        cdef bint more = self.session.awaits_room or not self._batch_waits()
        end_wait(self.session, self)
        self.session.batch.c_data = self.intake.inbuf.data
        while outcome == SLICE_OVER and more:
            outcome = continue_mpub(self.session, self.intake.parser)
            more = not self._batch_waits()
        self.session.batch.end_with(PUT_MEMORY, self.hub.slicer)
        return outcome

    cdef bint _batch_waits(self) noexcept:
        """Whether a multi-publish with an id has not published anything yet."""
        return self.session.batch.once.asked and self.session.batch.once.claim == 0

    # ------------------------------------------------------------------ replies that depend on the disk

    cdef void commit_ended(self, LoopWork commit, int error) noexcept:
        self.marks.commit_ended(<Commit> commit, error)
        if self.marks.waits():
            self._settle_marks()

    cdef void _settle_marks(self) noexcept:
        """Sends replies whose commits have succeeded; an error replaces a reply whose commit has failed."""
        cdef Mark failed = self.marks.settle()
        if failed is not None:
            text = write_failed(failed.kind, failed.error)
            self.hub.broker.refused(refusals.WRITE_FAILED)
            self.hub.complain(self.address, text)
            self._say(FRAME_ERROR, text)
            self.end()
        elif self.marks.waits():
            return
        elif self.ending:
            self._finish()
        elif self.upgrade is not None:
            self.upgrade.retry_later()

    # ------------------------------------------------------------------ incomplete commands

    cdef void _watch_stall(self) noexcept:
        """Sets the deadline for an incomplete command, or the magic. At most one timer runs."""
        if self.began_ns == 0:
            self.began_ns = self.intake.heard_ns
        if self.stall_timer is None and not self.intake.closed:
            self.stall_timer = self.hub.loop.call_later(self.hub.limits.stall_ns / 1e9, self.check_stall)

    def check_stall(self):
        """Closes the connection if its command is still incomplete."""
        cdef int64_t left_ns
        self.stall_timer = None
        if (self.intake.closed or self.intake.held & HELD_INPUT
                or (self.session is not None and self.intake.inbuf.length == 0 and not self.intake.gathering)):
            return
        left_ns = self.began_ns + self.hub.limits.stall_ns - monotonic_ns()
        if left_ns > NS_PER_MS:
            self.stall_timer = self.hub.loop.call_later(left_ns / 1e9, self.check_stall)
            return
        if self.spoke:
            self.hub.log.error("client(%s) - stalled within a command", self.address)
        try:
            if self.session is not None:
                self._cut_short()
        finally:
            self.end()

    cdef int _cut_short(self) except -1:
        """The client has left or stalled, within a command or between two."""
        self._act(cut_short(self.session, self.intake.parser, self.intake.incomplete()))
        return 0

    cdef void input_ended(self) noexcept:
        cdef Intake intake = self.intake
        try:
            if not intake.closed and self.session is not None and not intake.held & HELD_INPUT:
                if intake.codec is not None and intake.codec.cut_short():
                    self._act(self.session.fail(b"E_INVALID %b stream is cut short" % intake.codec.name.encode()))
                else:
                    self._cut_short()
        except BaseException as error:
            self.fail(error)
        self.end()

    # ------------------------------------------------------------------ the end

    cdef void end(self) noexcept:
        self.close()

    def close(self):
        """Sends the collected output once its commits have ended, then closes. Reads nothing more."""
        if not self.intake.closed and self._batch_is_open():
            self._answer_rest()
        if self.intake.closed and not self.ending:
            return
        if not self.intake.closed:
            self.intake.close()
            self._leave()
        self.ending = True
        if not self.marks.waits():
            self._finish()

    cdef void _answer_rest(self) noexcept:
        cdef int outcome = self._publish_rest()
        try:
            if outcome != SLICE_OVER:
                self._act(outcome)
        except BaseException as error:
            self.fail(error)

    def _finish(self):
        self.ending = False
        self.outbox.flush()
        if self._is_shaking_hands():
            self.outbox.closed = True   # no plain text in the middle of a handshake
        self.outbox.close()
        self.outbox.transport.close()
        if self.unsent() or (self.session is not None and self.session.tls is not None):
            # With TLS, the client also has to answer the closing alert.
            if self.stall_timer is not None:
                self.stall_timer.cancel()
            self.stall_timer = self.hub.loop.call_later(GIVE_UP_S, self.give_up, self.unsent())

    def arrives(self, double seconds) -> bool:
        """Whether the client connected within the last seconds and consumes nothing: it may be about to publish."""
        return (not self.intake.closed and monotonic_ns() - self.made_ns < <int64_t> (seconds * 1e9)
                and (self.session is None or self.session.channel is None))

    def unsent(self) -> int:
        """Bytes that wait for the client's socket, or for their commit."""
        return self.outbox.transport.get_write_buffer_size() + (0 if self.outbox.closed else self.outbox.bytes())

    def held_bytes(self) -> int:
        """The size of its buffers, including the transport's."""
        cdef Outbox outbox = self.outbox
        return (self.intake.inbuf.room + outbox.gather.buf.room + outbox.gather.room * <Py_ssize_t> sizeof(Body)
                + (0 if outbox.transport is None else outbox.transport.get_write_buffer_size()))

    def give_up(self, Py_ssize_t before):
        """Aborts a closing connection whose client accepted none of its bytes; before: unsent at the last check."""
        cdef Py_ssize_t left = self.unsent()
        if left < before:
            self.stall_timer = self.hub.loop.call_later(GIVE_UP_S, self.give_up, left)
            return
        self.stall_timer = None
        self.hub.log.warn("client(%s) - accepts no data while it is closed, %d bytes are dropped", self.address, left)
        self.outbox.transport.abort()

    cdef void fail(self, error) noexcept:
        self._log_raised(error)
        if self.outbox.transport is not None:
            self.outbox.transport.abort()

    def _log_raised(self, error):
        self.hub.log.error("[%s] - connection failed: %s", self.address, "".join(traceback.format_exception(error)))

    def _leave(self):
        """Removes the client from its channel; its messages in flight wait for their timeout."""
        if self.session is None:
            return
        self.session.closed = True
        try:
            if self.session.guard is not None:
                self.session.guard.close()
            if self.session.channel is not None:
                self.session.channel.remove_client(self.session)
        except BaseException as error:
            # The connection ends anyway.
            self._log_raised(error)

    cdef void lost(self, error) noexcept:
        self.intake.close()
        if self.host is None:
            return
        if self.session is not None:
            end_wait(self.session, self)
        if self._batch_is_open() and self.session.batch.once.claim:
            self._publish_rest()    # a retry finds it stored, or publishes all of it
        self.hub.connection_limits.leave(self.host)
        self.host = None
        self.hub.connections.pop(self, None)
        self.outbox.closed = True
        self.outbox.close()
        self.marks.clear()
        self.ending = False
        if self.heartbeat is not None:
            self.heartbeat.stop()
        if self.stall_timer is not None:
            self.stall_timer.cancel()
            self.stall_timer = None
        if self.pace_timer is not None:
            self.pace_timer.cancel()
        self._leave()
        if self.spoke:
            self.hub.log.info("PROTOCOL(V2): [%s] connection closed", self.address)
        else:
            self.hub.log.debug("TCP: client(%s) disconnected without sending anything", self.address)
        # Breaks cycles, which would wait for the garbage collector.
        self.intake.dispose()
        self.upgrade = None
        self.outbox.transport = None
        if self.session is not None:
            self.session.forget()
