# The input of one connection: where the loop reads to, which bytes are kept, and why reads are paused.
#
# All connections read into one area. inbuf keeps the bytes of an incomplete command. If they are few, they are put
# right before the area's next bytes, so that the command can be parsed in place:
#
#   | headroom, up to HEADROOM bytes of a kept command | RECEIVE_BYTES that the loop reads into |

from libc.stdint cimport int64_t
from nsqc.broker.openbatch cimport OpenBatch
from nsqc.tcp.hub cimport Hub
from nsqc.tcp.largebody cimport LargeBody
from nsqc.tcp.link cimport Link
from nsqc.tcp.outbox cimport Outbox
from nsqc.wire.codec cimport Codec
from nsqc.wire.inbuf cimport InBuf
from nsqc.wire.parser cimport Parser

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
    cdef void free(self) noexcept

    cdef void _heard(self) noexcept
    cdef int _take(self, Py_ssize_t length) except -1       # bytes in the area
    cdef bint _may_read_direct(self) noexcept
    cdef int _take_direct(self, Py_ssize_t length) except -1
    cdef int _gather_again(self) except -1
    cdef int _take_detour(self, Py_ssize_t length) except -1
    cdef void _keep(self, const char *c_from, Py_ssize_t length) noexcept
    cdef int _decode(self) except -1
