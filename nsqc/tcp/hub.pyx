"""State shared by all connections of one daemon: broker, limits, the receive area, the log of their errors."""

cimport cython
from libc.stdlib cimport free, malloc

from nsqc.broker.broker cimport Broker
from nsqc.tcp.outbox cimport Iteration
from nsqc.tcp.session cimport Limits


@cython.final
cdef class Hub:
    """Created once, before the first connection."""

    def __cinit__(self):
        self.area = <char *> malloc(HEADROOM + RECEIVE_BYTES)
        if self.area is NULL:
            raise MemoryError

    def __init__(self, Broker broker not None, settings, log, loop, connection_limits, tls=None, authority=None,
                 audit=None):
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

    def sessions(self) -> list:
        """The sessions of all clients that have sent their magic."""
        return [session for session in [connection.session for connection in self.connections] if session is not None]

    def close(self, double arriving_s=0):
        """Flushes and closes all connections except those that Connection.arrives() spares for now."""
        for connection in list(self.connections):
            if not connection.arrives(arriving_s):
                connection.close()
