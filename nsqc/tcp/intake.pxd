# The input of one connection: where the loop reads to, which bytes are kept, and why nothing is read for now.
#
# All connections read into one area. The bytes of an incomplete command are kept in inbuf and, if there are not many,
# put right before the area's next bytes, where the command can then be parsed in place:
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

cdef enum Held:             # why nothing is read for now
    HELD_UNREAD = 1         # the client does not read its output
    HELD_DECODING = 2       # bytes are not decoded yet
    HELD_UPGRADE = 4        # TLS or compression, asked for by IDENTIFY, is not in place yet
    HELD_WAITING = 8        # a command waits for resume(); it and the following ones are kept in inbuf
    HELD_SLICE = 16         # the commands in inbuf are run in the next slice
    HELD_BEHIND = 32        # the topic published to has to catch up or have room first; publish_on() follows
    HELD_PACE = 64          # it creates topics or channels too fast; create_on() follows
    HELD_INPUT = 120        # any of the last four: commands in inbuf are not run


cdef class Intake:
    cdef Link link                      # None once the connection is gone
    cdef Hub hub
    cdef Outbox outbox                  # for its transport and descriptor
    cdef Parser parser
    cdef InBuf inbuf                    # owned
    cdef Codec codec                    # None: the input is not compressed
    cdef LargeBody large                # None until one has come
    cdef int held                       # bits of Held
    cdef int64_t heard_ns               # monotonic: when bytes came last
    cdef bint ran                       # the last call of updated() has run commands
    cdef bint closed                    # nothing more is read or run
    cdef bint upgrading                 # from IDENTIFY until TLS and compression are in place, as agreed
    cdef bint detour                    # input does not go straight to the parser: closed, upgrading, or a codec
    cdef bint gathering                 # into large; the parser waits
    cdef bint direct                    # the read in progress goes into large
    cdef bint arrived                   # and has completed a message: gather() without bytes takes it

    @staticmethod
    cdef Intake new(Link link, Hub hub, Outbox outbox, Parser parser, int64_t now_ns)

    cdef int lend(self) except -1                           # prepares this object's buffer for the next read
    cdef int updated(self, Py_ssize_t length) except -1     # length bytes were read there
    cdef int run_kept(self) except -1                       # runs the commands in inbuf, before anything is read
    # The body that has begun to arrive goes into messages of a batch. Returns the bytes used; 0: no memory for that.
    cdef Py_ssize_t begin_gathering(self, const char *c_at, Py_ssize_t have, OpenBatch batch) noexcept
    # While gathering: as LargeBody.gather(). With PARSE_BODY, gathering is over.
    cdef int gather(self, const char *c_at, Py_ssize_t length, Py_ssize_t *used) noexcept
    cdef Py_ssize_t incomplete(self) noexcept               # bytes of the incomplete command
    cdef void hold(self, int why) noexcept
    cdef void release(self, int why) noexcept
    cdef inline void run_later(self, int why) noexcept:     # after this wait, commands are run in the next slice
        self.held = self.held & ~why | HELD_SLICE
    cdef inline void run_now(self, int why) noexcept:       # this wait is over; run_kept() follows, and may read again
        self.held &= ~why
    cdef void close(self) noexcept
    cdef void begin_upgrade(self) noexcept
    cdef void drop_kept(self) noexcept
    cdef int end_upgrade(self, Codec codec) except -1       # input is read again, through the codec if there is one
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
