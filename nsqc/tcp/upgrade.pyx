"""Upgrades a plain connection to TLS and compression. See the .pxd for the steps."""

cimport cython

from nsqc.tcp.hub cimport Hub
from nsqc.tcp.intake cimport Intake
from nsqc.tcp.link cimport Link
from nsqc.tcp.marks cimport Marks
from nsqc.tcp.outbox cimport Outbox
from nsqc.tcp.session cimport Session
from nsqc.wire.codec cimport Codec

import asyncio

from nsqc.net.limits import handshake_error
from nsqc.wire.codecs import new_codec

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
        from nsqc.tcp.secured import describe   # here: only needed for clients with TLS

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
