# The input of one connection: where the loop reads to, what is kept of it, and why nothing is read for now.
#
# All connections read into one area. What belongs to an incomplete command is kept in inbuf and, if it is not large,
# put right before the area's next bytes, where the command can then be parsed in place:
#
#   | headroom, up to HEADROOM bytes of a kept command | RECEIVE_BYTES that the loop reads into |

from libc.stdint cimport int64_t
from nsqc.tcp.hub cimport Hub
from nsqc.tcp.largebody cimport LargeBody
from nsqc.tcp.link cimport Link
from nsqc.tcp.outbox cimport Outbox
from nsqc.wire.codec cimport Codec
from nsqc.wire.inbuf cimport InBuf
from nsqc.wire.parser cimport Parser

cdef enum Held:             # why nothing is read for now
    HELD_UNREAD = 1         # the client leaves its output unread
    HELD_DECODING = 2       # what was read is not decoded yet
    HELD_UPGRADE = 4        # IDENTIFY has asked for TLS or compression, and that is not in place
    HELD_WAITING = 8        # a command waits for resume(); it and all behind it are kept in inbuf
    HELD_SLICE = 16         # what is in inbuf is run in the next slice
    HELD_BEHIND = 32        # the topic that was published to has to catch up first, or have room; publish_on() follows
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
    cdef bint closed                    # nothing more is read or run
    cdef bint upgrading                 # from IDENTIFY until what it has agreed on is in place
    cdef bint detour                    # input does not go straight to the parser: closed, upgrading, or a codec
    cdef bint gathering                 # into large; the parser waits
    cdef bint direct                    # the read under way goes into large
    cdef bint arrived                   # it was the last of a message

    @staticmethod
    cdef Intake new(Link link, Hub hub, Outbox outbox, Parser parser, int64_t now_ns)

    cdef int lend(self) except -1                           # prepares this object's buffer for the next read
    cdef int updated(self, Py_ssize_t length) except -1     # so many bytes have been read there
    cdef int run_kept(self) except -1                       # commands that inbuf has; nothing is read before that
    # The body that has begun to arrive goes into messages; how many bytes are done with, 0: it does not.
    cdef Py_ssize_t begin_gathering(self, const char *c_at, Py_ssize_t have) noexcept
    cdef Py_ssize_t incomplete(self) noexcept               # bytes of the incomplete command
    cdef void hold(self, int why) noexcept
    cdef void release(self, int why) noexcept
    cdef void close(self) noexcept
    cdef void begin_upgrade(self) noexcept
    cdef void drop_kept(self) noexcept
    cdef int end_upgrade(self, Codec codec) except -1       # input is read again, through the codec if there is one
    cdef int decode_later(self) except -1
    cdef void free(self) noexcept

    cdef int _take(self, Py_ssize_t length) except -1       # bytes that lie in the area
    cdef bint _may_read_direct(self) noexcept
    cdef int _take_direct(self, Py_ssize_t length) except -1
    cdef int _gather_again(self) except -1
    cdef int _take_detour(self, Py_ssize_t length) except -1
    cdef void _keep(self, const char *c_from, Py_ssize_t length) noexcept
    cdef int _decode(self) except -1
