"""The parts of a connection, its deadlines and its end. See the .pxd."""

from libc.stdint cimport int64_t

from nsqc.store.backlog cimport PUT_MEMORY
from nsqc.store.clock cimport monotonic_ns
from nsqc.store.commit cimport Commit
from nsqc.store.seams cimport LoopWork
from nsqc.tcp.commands cimport continue_mpub
from nsqc.tcp.gather cimport Body
from nsqc.tcp.intake cimport HELD_INPUT, Intake
from nsqc.tcp.link cimport Link
from nsqc.tcp.marks cimport Mark
from nsqc.tcp.outbox cimport Outbox
from nsqc.tcp.outcome cimport SLICE_OVER
from nsqc.tcp.publishwait cimport end_wait
from nsqc.tcp.refusals cimport cut_short, write_failed
from nsqc.wire.const cimport FRAME_ERROR

import traceback

from nsqc.broker import refusals

cdef enum:
    NS_PER_MS = 1000000

# A client that closes properly accepts the last bytes within moments, and a network that has lost packets resends them
# within one or two seconds. Longer silence only costs a descriptor.
GIVE_UP_S = 5.0


cdef class ConnectionState(Link):
    """The parts of a connection."""

    cdef bint act_on(self, int outcome) except -1:
        raise NotImplementedError

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
        self.act_on(cut_short(self.session, self.intake.parser, self.intake.incomplete()))
        return 0

    cdef void input_ended(self) noexcept:
        cdef Intake intake = self.intake
        try:
            if not intake.closed and self.session is not None and not intake.held & HELD_INPUT:
                if intake.codec is not None and intake.codec.cut_short():
                    self.act_on(self.session.fail(b"E_INVALID %b stream is cut short" % intake.codec.name.encode()))
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
                self.act_on(outcome)
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
        self.intake.free()
        self.upgrade = None
        self.outbox.transport = None
        if self.session is not None:
            self.session.forget()
