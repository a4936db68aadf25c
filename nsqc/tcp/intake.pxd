# Bytes from clients: decoded, parsed, gathered, fairly shared; heartbeats and upgrades.

from libc.stdint cimport int64_t, uint32_t

from nsqc.broker.broker cimport Broker
from nsqc.broker.topic cimport OpenBatch
from nsqc.store.message cimport Message
from nsqc.store.work cimport Slicer
from nsqc.tcp.outbox cimport Iteration, Marks, Outbox
from nsqc.tcp.session cimport Limits, Link, Session
from nsqc.wire.codecs cimport Codec
from nsqc.wire.parser cimport Command, InBuf, Parser


# ====================================================================== large bodies
# A publishing command whose body takes several reads. Its bytes go into messages as they arrive, so each byte is copied
# at most once: bytes that share a read with others are copied from the receive area, and the rest of a large message
# is read straight into it.
#
#   PUB t\n | size | body . . . . . .             one message, known from its size on
#   MPUB t\n | size | count | size | body | ...   one after the other; published when all have arrived
#
# The messages of a batch often have the same size. So after a large one, the same size is guessed for the next, and the
# next read goes into that: first the four bytes of its size, right before the body, where its id will be, then the
# body. After a wrong guess, the bytes read there are gathered again.
#
# Gathering drops the line, so the words that the command needs are kept here.

cdef enum:
    LARGE_MESSAGE = 8192        # least body bytes of a PUB to gather it
    LARGE_BATCH = 65536         # of an MPUB
    # Body bytes that must have arrived: a client that only announces a large body gets no memory for it. A message in
    # a slab may take all that it will need at once, in a huge page: 128 KiB.
    LEAST_GATHERED = 16384

cdef enum Came:
    CAME_PART
    CAME_WHOLE                  # call gather() without bytes
    CAME_WRONG                  # the guess was wrong: take_wrong()


cdef class LargeBody:
    cdef char[64] topic_name
    cdef Py_ssize_t topic_bytes
    cdef char[64] id            # of the publish, if the client may give one
    cdef Py_ssize_t id_bytes    # 0: none
    cdef int64_t defer_ms       # of DMPUB
    cdef OpenBatch batch        # receives the complete messages
    cdef Message *partial       # owned: the arriving one; NULL: size not known yet
    cdef int64_t have           # bytes of its body; negative: missing bytes of its size field
    cdef bint guessed           # the size is a guess; until confirmed, all input must be read into it
    cdef uint32_t last_size     # of the previous message

    # Whether to gather an incomplete command; have: its bytes so far, line included.
    @staticmethod
    cdef bint wants(Parser parser, Py_ssize_t have) noexcept
    # Begins with the parser's command at c_at. Returns the bytes used of it; -1: no memory.
    cdef Py_ssize_t begin(self, Parser parser, const char *c_at, OpenBatch batch) noexcept
    # Gathers from these bytes and sets used to the bytes used. Returns a ParseEvent: PARSE_MORE, PARSE_BODY (batch has
    # all messages), PARSE_NO_MEMORY, or an error of a size.
    cdef int gather(self, Parser parser, const char *c_at, Py_ssize_t length, Py_ssize_t *used) noexcept
    # Bytes that can be read straight into a message, at into(); guesses the next one if the last had at least `least`.
    cdef Py_ssize_t missing(self, Parser parser, uint32_t least) noexcept
    cdef char *into(self) noexcept
    # After length bytes were read there.
    cdef int came(self, Parser parser, Py_ssize_t length) noexcept      # Came
    # With CAME_WRONG: the guessed message, with its reference; 4 + have bytes from body - 4 on are input.
    cdef Message *take_wrong(self) noexcept
    cdef Py_ssize_t body_bytes(self, Parser parser, Py_ssize_t kept) noexcept   # so far; kept: not gathered yet
    cdef void drop(self, Slicer slicer) noexcept    # all messages
    cdef void _keep_words(self, const Command *command) noexcept
    cdef bint _expect(self, uint32_t size) noexcept     # of that size; False: no memory


# ====================================================================== hub
# State shared by all connections of one daemon.

cdef enum:
    RECEIVE_BYTES = 262144      # of the area: the most bytes of one read
    HEADROOM = 65536            # of the area, before that: see intake.pxd


cdef class Hub:
    cdef readonly Broker broker
    cdef Iteration iteration
    cdef Limits limits
    cdef object settings       # nsqc.options.declared.Settings
    cdef readonly object log    # type: Log
    cdef readonly object loop    # type: AbstractEventLoop
    cdef public object authority    # type: Authority | None; None: clients need not authenticate
    cdef object audit                   # nsqc.access.audit.Audit; None: nothing is recorded
    cdef object connection_limits  # nsqc.net.listener.ConnectionLimits
    cdef object tls            # nsqc.net.tls.Certificates; None: TLS is not offered
    cdef readonly dict connections    # type: dict[Connection, None]; all open ones, in order of arrival
    cdef dict tallies                   # error code to nsqc.log.formats.Kind, for errors that are only counted
    cdef Slicer slicer
    cdef char *area                     # owned
    cdef char *c_into                   # where the next read goes: the area, or an arriving message
    cdef Py_ssize_t room                # bytes available there

    cdef void complain(self, address, bytes error) noexcept


# ====================================================================== intake
# The input of one connection: where the loop reads to, which bytes are kept, and why reads are paused.
#
# All connections read into one area. inbuf keeps the bytes of an incomplete command. If they are few, they are put
# right before the area's next bytes, so that the command can be parsed in place:
#
#   | headroom, up to HEADROOM bytes of a kept command | RECEIVE_BYTES that the loop reads into |

cdef enum Held:             # why reads are paused
    HELD_UNREAD = 1         # the client does not read its output
    HELD_DECODING = 2       # some bytes are not decoded yet
    HELD_UPGRADE = 4        # TLS or compression from IDENTIFY is not in place yet
    HELD_WAITING = 8        # a command waits for resume(); inbuf keeps it and the following ones
    HELD_SLICE = 16         # the connection's run() follows and runs the commands in inbuf
    HELD_PACE = 32          # it creates topics or channels too fast; create_on() follows
    HELD_INPUT = 56         # any of the last three: commands in inbuf must wait


cdef class Intake:
    cdef Link link                      # None once the connection is gone
    cdef Hub hub
    cdef Outbox outbox                  # for its transport and descriptor
    cdef Parser parser
    cdef InBuf inbuf                    # owned
    cdef Codec codec                    # None: the input is not compressed
    cdef LargeBody large                # None before the first large body
    cdef int held                       # bits of Held
    cdef int64_t heard_ns               # monotonic: when bytes last arrived
    cdef bint ran                       # the last updated() ran commands
    cdef bint closed                    # reads and runs nothing more
    cdef bint upgrading                 # from IDENTIFY until the agreed TLS and compression are in place
    cdef bint detour                    # input bypasses the parser: closed, upgrading, or a codec
    cdef bint gathering                 # into large; the parser waits
    cdef bint direct                    # the running read goes into large
    cdef bint arrived                   # and has completed a message: call gather() without bytes

    @staticmethod
    cdef Intake new(Link link, Hub hub, Outbox outbox, Parser parser, int64_t now_ns)

    cdef int lend(self) except -1                           # prepares this object's buffer for the next read
    cdef int updated(self, Py_ssize_t length) except -1     # length bytes were read there
    cdef int run_kept(self) except -1                       # runs the commands in inbuf before any read
    # Puts an arriving body into messages of a batch. Returns the bytes used; 0: no memory for that.
    cdef Py_ssize_t begin_gathering(self, const char *c_at, Py_ssize_t have, OpenBatch batch) noexcept
    # While gathering: as LargeBody.gather(). PARSE_BODY ends gathering.
    cdef int gather(self, const char *c_at, Py_ssize_t length, Py_ssize_t *used) noexcept
    cdef Py_ssize_t incomplete(self) noexcept               # bytes of the incomplete command
    cdef void hold(self, int why) noexcept
    cdef void release(self, int why) noexcept
    cdef inline void run_later(self, int why) noexcept:     # after this wait, the next slice runs commands
        self.held = self.held & ~why | HELD_SLICE
    cdef inline void run_now(self, int why) noexcept:       # ends this wait; run_kept() follows, and may resume reads
        self.held &= ~why
    cdef void close(self) noexcept
    cdef void begin_upgrade(self) noexcept
    cdef void drop_kept(self) noexcept
    cdef int end_upgrade(self, Codec codec) except -1       # resumes reads, through the codec if there is one
    cdef int decode_later(self) except -1
    cdef void dispose(self) noexcept

    cdef void _heard(self) noexcept
    cdef int _take(self, Py_ssize_t length) except -1       # bytes in the area
    cdef bint _may_read_direct(self) noexcept
    cdef int _take_direct(self, Py_ssize_t length) except -1
    cdef int _gather_again(self) except -1
    cdef int _take_detour(self, Py_ssize_t length) except -1
    cdef void _keep(self, const char *c_from, Py_ssize_t length) noexcept
    cdef int _decode(self) except -1


# ====================================================================== heartbeat
# Heartbeats of one client, and the check that it is alive: one timer for both.

cdef class Heartbeat:
    cdef Hub hub
    cdef Session session                # heartbeat_ms and pace_ms
    cdef Outbox outbox
    cdef Intake intake                  # when it was last heard, and whether input is read at all
    cdef object timer
    cdef int64_t beat_ns                # monotonic: next heartbeat; 0: never
    cdef int64_t blocked_ns             # monotonic: since when the socket accepts nothing; 0: it accepts output
    cdef bint suspect                   # silent for too long, unless the next read proves otherwise

    @staticmethod
    cdef Heartbeat new(Hub hub, Session session, Outbox outbox, Intake intake)

    cdef int begin(self) except -1      # session.pace_ms is known
    cdef int watch(self) except -1      # session.heartbeat_ms has changed, or the timer has fired
    cdef void stop(self) noexcept

    cdef bint _is_alive(self, int64_t now, int64_t interval_ns) except -1


# ====================================================================== upgrade
# The change of a connection to TLS and compression, as agreed by IDENTIFY:
#
#   begin()      nothing more is read in the clear, and the reply to IDENTIFY is sent, with all output before it
#   handshake    if TLS was agreed; drops input after IDENTIFY, then sends OK inside TLS
#   codec        if one was agreed; sends OK inside it
#   done         input received meanwhile goes through the codec
#
# One for each upgrade; the connection drops it at Link.upgraded().

cdef class Upgrade:
    cdef Link link
    cdef Hub hub
    cdef Session session
    cdef Intake intake
    cdef Outbox outbox
    cdef Marks marks
    cdef object host                # the client's key for the connection limits
    cdef object agreed              # nsqc.tcp.identify.Layers
    cdef bint shaking_hands         # the transport belongs to TLS, which has no input for us yet

    @staticmethod
    cdef Upgrade new(Link link, Hub hub, Session session, Intake intake, Outbox outbox, Marks marks, object host)

    cdef int begin(self) except -1
    cdef int retry_later(self) except -1    # after earlier output was sent
