# The V2 command parser: bytes in, one Command at a time out. It keeps no bytes: the caller keeps what belongs to an
# unfinished command and offers it again, with more behind it, wherever it lies by then.
#
# States of a command:
#   LINE     waiting for the line feed
#   SIZE     line known, body expected: waiting for the four bytes of its size
#   BODY     size accepted: waiting for the body (of MPUB: checked message by message as it arrives)

from libc.stdint cimport int32_t, int64_t
from nsqc.wire.mpub cimport MpubCheck

cdef enum CommandKind:
    CMD_UNKNOWN
    CMD_FIN
    CMD_RDY
    CMD_REQ
    CMD_TOUCH
    CMD_PUB
    CMD_MPUB
    CMD_DPUB
    CMD_SUB
    CMD_CLS
    CMD_NOP
    CMD_IDENTIFY
    CMD_AUTH

cdef enum ParseEvent:
    PARSE_MORE              # incomplete; nothing is used
    PARSE_LINE              # a whole line; if has_body, nothing is used yet: call expect_body or give up
    PARSE_BODY              # a whole command with body
    PARSE_LINE_TOO_LONG
    PARSE_BAD_SIZE          # command.size is zero or below
    PARSE_TOO_BIG           # command.size is above the limit
    PARSE_BAD_COUNT         # MPUB, from here on; see MpubState
    PARSE_BAD_MESSAGE_SIZE
    PARSE_MESSAGE_TOO_BIG
    PARSE_OVERRUN
    PARSE_NO_MEMORY         # never from next(): for whoever takes a body over

cdef enum ParseState:
    AT_LINE
    AT_SIZE
    AT_BODY

cdef enum:
    MAX_ARGS = 4            # words kept of a line, its name included; argc counts all

cdef struct Command:
    int kind
    int argc                # words of the line, the name included
    const char *args[4]     # they point into the bytes given to next(), and hold until those move
    int32_t arg_bytes[4]
    int32_t size            # of the body, as declared
    const char *body        # with PARSE_BODY: size bytes
    MpubCheck mpub          # of MPUB: count, and where an error lies


cdef class Parser:
    cdef int state                  # ParseState
    cdef Py_ssize_t used            # bytes of the command that next() completed
    cdef Py_ssize_t line_bytes      # of the current line, line feed included; 0 while unknown
    cdef Py_ssize_t searched        # bytes of the unfinished line already searched for a line feed
    cdef int64_t limit              # of the body, set by expect_body
    cdef int64_t max_message        # of one message in MPUB
    cdef const char *c_split_at     # where the line lay when it was split into words
    cdef Command command

    @staticmethod
    cdef Parser new(int64_t max_message)

    # Looks at the bytes from c_at to c_end, which begin with the current command. Returns a ParseEvent.
    cdef int next(self, const char *c_at, const char *c_end) noexcept
    # Accepts the body of the command whose line next() has just returned, up to limit bytes.
    cdef void expect_body(self, int64_t limit) noexcept
    # Whoever has taken the body over, after PARSE_MORE at AT_BODY, has it whole: the next command follows.
    cdef void body_ended(self) noexcept

    cdef int _line(self, const char *c_at, const char *c_end) noexcept
    cdef int _body(self, const char *c_at, const char *c_end) noexcept
    cdef void _split(self, const char *c_at) noexcept


cdef bint command_has_body(int kind) noexcept nogil
cdef int mpub_event(int found) noexcept nogil       # a ParseEvent for a MpubState

# A decimal number without sign, as the protocol has them; -1: not one. Wraps around like the original beyond 64 bits.
cdef bint parse_decimal(const char *c_text, Py_ssize_t length, int64_t *value) noexcept nogil
