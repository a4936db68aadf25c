# Bytes of clients to commands: names, the input buffer, the payload of MPUB, the resumable parser.

from libc.stdint cimport int32_t, int64_t


# ====================================================================== names
# The rules for topic and channel names, as bytes.

# 1 to 64 of . a-z A-Z 0-9 _ -; "#ephemeral" may follow, and counts.
cdef bint name_is_valid(const char *c_name, Py_ssize_t length) noexcept nogil
cdef bint name_is_ephemeral(const char *c_name, Py_ssize_t length) noexcept nogil


# ====================================================================== input buffer
# A connection's input between reads: the bytes of one incomplete command.

cdef struct InBuf:
    char *data          # owned; NULL if empty
    Py_ssize_t length   # bytes kept
    Py_ssize_t room     # bytes allocated

cdef int inbuf_append(InBuf *inbuf, const char *c_from, Py_ssize_t length) noexcept nogil   # 0; -1: no memory
cdef void inbuf_drop(InBuf *inbuf, Py_ssize_t length) noexcept nogil                        # the first length bytes
cdef void inbuf_free(InBuf *inbuf) noexcept nogil                                           # all of it


# ====================================================================== multi-publish
# The body of a multi-publish: the number of messages, then size and bytes of each.
#
#   offset  bytes  field
#        0      4  number of messages, big-endian
#        4      4  size of the first message
#        8      n  its bytes, and so on
#
# The body ends with its last message. The declared size is unreliable: some clients omit the count or the sizes from
# it, and nsqd relies on the count alone.

cdef enum MpubState:
    MPUB_MORE           # incomplete
    MPUB_WHOLE
    MPUB_BAD_COUNT      # value: the count
    MPUB_BAD_SIZE       # value: a size of 0 or below; index: of the message
    MPUB_TOO_BIG        # value: a size above the limit
    MPUB_OVERRUN        # the messages exceed the body limit in total; value: size of the one that exceeds it

# Progress of checking a body; all zero for a new one.
cdef struct MpubCheck:
    int32_t count       # messages declared; 0: not read yet
    int32_t index       # messages checked so far
    int32_t value       # the number that the error is about
    int64_t at          # offset of the next size field

# Checks the size field at c_at, of which `have` bytes have arrived: MPUB_WHOLE and, in value, the size; or as above.
cdef int mpub_next(MpubCheck *check, const char *c_at, int64_t have, int64_t max_message,
                   int64_t max_body) noexcept nogil
cdef bint mpub_passed(MpubCheck *check) noexcept nogil      # that message is complete; returns whether it was the last
cdef int64_t mpub_bytes(const MpubCheck *check) noexcept nogil      # of the messages checked, without their sizes


# ====================================================================== parser
# The V2 command parser: bytes in, one Command at a time out. It buffers nothing: the caller keeps the bytes of an
# incomplete command and passes them again, followed by more, at any address.
#
# States of a command:
#   LINE     waiting for the line feed
#   SIZE     line known, body expected: waiting for the four bytes of its size
#   BODY     size accepted: waiting for the body (of a batch: checked message by message as it arrives)

cdef enum CommandKind:
    CMD_UNKNOWN
    CMD_FIN
    CMD_RDY
    CMD_REQ
    CMD_TOUCH
    CMD_DEAD                # of nsqc, where it is negotiated
    CMD_PUB
    CMD_MPUB
    CMD_DMPUB               # the same
    CMD_DPUB
    CMD_SUB
    CMD_CLS
    CMD_NOP
    CMD_IDENTIFY
    CMD_AUTH

cdef enum ParseEvent:
    PARSE_MORE              # incomplete; nothing is consumed
    PARSE_LINE              # a line; if the command has a body, nothing is consumed yet: call expect_body() or give up
    PARSE_BODY              # a command with its body
    PARSE_LINE_TOO_LONG
    PARSE_BAD_SIZE          # command.size is 0 or below
    PARSE_TOO_BIG           # command.size is above the limit
    PARSE_BAD_COUNT         # a batch, from here on; see MpubState
    PARSE_BAD_MESSAGE_SIZE
    PARSE_MESSAGE_TOO_BIG
    PARSE_OVERRUN
    PARSE_NO_MEMORY         # never from next(): for callers that receive a body themselves

cdef enum ParseState:
    AT_LINE
    AT_SIZE
    AT_BODY

cdef enum:
    MAX_ARGS = 4            # words of a line that are stored, including the name; argc counts all

cdef struct Command:
    int kind
    int argc                # words of the line, including the name
    const char *args[4]     # in the bytes passed to next(); valid until those move
    int32_t arg_bytes[4]
    int32_t size            # of the body, as declared
    const char *body        # with PARSE_BODY: size bytes
    MpubCheck mpub          # of a batch: the count, and where an error is


cdef class Parser:
    cdef int state                  # ParseState
    cdef Py_ssize_t used            # bytes of the command that next() completed
    cdef Py_ssize_t line_bytes      # of the current line, including the line feed; 0: not known yet
    cdef Py_ssize_t searched        # bytes of an incomplete line without a line feed
    cdef int64_t limit              # of the body, set by expect_body
    cdef int64_t max_message        # of one message in an MPUB
    cdef const char *c_split_at     # address of the line when it was split into words
    cdef Command command

    @staticmethod
    cdef Parser new(int64_t max_message)

    # Parses the bytes from c_at to c_end, which start with the current command. Returns a ParseEvent.
    cdef int next(self, const char *c_at, const char *c_end) noexcept
    # Accepts the body of the command whose line next() has just returned, up to limit bytes.
    cdef void expect_body(self, int64_t limit) noexcept
    # After PARSE_MORE at AT_BODY a caller may receive the body itself. Now it is complete: the next command follows.
    cdef void body_ended(self) noexcept

    cdef int _line(self, const char *c_at, const char *c_end) noexcept
    cdef int _body(self, const char *c_at, const char *c_end) noexcept
    cdef void _split(self, const char *c_at) noexcept


cdef bint command_has_body(int kind) noexcept nogil
cdef inline bint command_is_batch(int kind) noexcept nogil:
    return kind == CMD_MPUB or kind == CMD_DMPUB
# Which word of a publishing command is its id, if the client may give one.
cdef inline int command_id_at(int kind) noexcept nogil:
    return 2 if kind == CMD_PUB or kind == CMD_MPUB else 3
cdef inline bint command_publishes(int kind) noexcept nogil:
    return CMD_PUB <= kind <= CMD_DPUB
cdef int mpub_event(int state) noexcept nogil       # the ParseEvent for an MpubState

# A decimal number without sign, as in the protocol; False: it is not one. Like nsqd's, it wraps around beyond 64
# bits.
cdef bint parse_decimal(const char *c_text, Py_ssize_t length, int64_t *value) noexcept nogil
