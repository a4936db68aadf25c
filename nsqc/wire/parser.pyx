"""The V2 command parser. Knows only bytes: no sockets, no topics, no rules about the order of commands."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memchr, memcmp, memset

from nsqc.wire.const cimport MAX_LINE_BYTES
from nsqc.wire.hton cimport load_i32
from nsqc.wire.mpub cimport (MPUB_BAD_COUNT, MPUB_BAD_SIZE, MPUB_MORE, MPUB_TOO_BIG, MPUB_WHOLE,
                             mpub_check)


cdef bint command_has_body(int kind) noexcept nogil:
    return (kind == CMD_PUB or command_is_batch(kind) or kind == CMD_DPUB
            or kind == CMD_IDENTIFY or kind == CMD_AUTH)


cdef int command_kind(const char *c_name, Py_ssize_t length) noexcept nogil:
    """The CommandKind of a name."""
    if length == 3:
        if memcmp(c_name, b"FIN", 3) == 0:
            return CMD_FIN
        if memcmp(c_name, b"PUB", 3) == 0:
            return CMD_PUB
        if memcmp(c_name, b"RDY", 3) == 0:
            return CMD_RDY
        if memcmp(c_name, b"REQ", 3) == 0:
            return CMD_REQ
        if memcmp(c_name, b"NOP", 3) == 0:
            return CMD_NOP
        if memcmp(c_name, b"SUB", 3) == 0:
            return CMD_SUB
        if memcmp(c_name, b"CLS", 3) == 0:
            return CMD_CLS
    elif length == 4:
        if memcmp(c_name, b"MPUB", 4) == 0:
            return CMD_MPUB
        if memcmp(c_name, b"DPUB", 4) == 0:
            return CMD_DPUB
        if memcmp(c_name, b"AUTH", 4) == 0:
            return CMD_AUTH
    elif length == 5:
        if memcmp(c_name, b"TOUCH", 5) == 0:
            return CMD_TOUCH
        if memcmp(c_name, b"DMPUB", 5) == 0:
            return CMD_DMPUB
    elif length == 8 and memcmp(c_name, b"IDENTIFY", 8) == 0:
        return CMD_IDENTIFY
    return CMD_UNKNOWN


cdef bint parse_decimal(const char *c_text, Py_ssize_t length, int64_t *value) noexcept nogil:
    cdef uint64_t number = 0
    cdef Py_ssize_t at
    for at in range(length):
        if not c'0' <= c_text[at] <= c'9':
            return False
        number = number * 10 + <uint64_t> (c_text[at] - c'0')
    value[0] = <int64_t> number
    return True


@cython.final
cdef class Parser:
    """Splits the input of one connection into commands."""

    def __init__(self):
        raise TypeError("Parser objects are made by Parser.new()")

    @staticmethod
    cdef Parser new(int64_t max_message):
        cdef Parser self = Parser.__new__(Parser)
        self.max_message = max_message
        return self

    cdef int next(self, const char *c_at, const char *c_end) noexcept:
        if self.state == AT_LINE:
            return self._line(c_at, c_end)
        return self._body(c_at, c_end)

    cdef void expect_body(self, int64_t limit) noexcept:
        self.limit = limit
        self.state = AT_SIZE

    cdef void body_ended(self) noexcept:
        self.state = AT_LINE
        self.used = 0

    cdef int _line(self, const char *c_at, const char *c_end) noexcept:
        cdef Py_ssize_t have = c_end - c_at
        cdef const char *c_feed = <const char *> memchr(c_at + self.searched, c'\n', have - self.searched)
        if c_feed is NULL:
            self.searched = have
            return PARSE_LINE_TOO_LONG if have >= MAX_LINE_BYTES else PARSE_MORE
        self.searched = 0
        self.line_bytes = c_feed - c_at + 1
        if self.line_bytes > MAX_LINE_BYTES:
            return PARSE_LINE_TOO_LONG
        self._split(c_at)
        if not command_has_body(self.command.kind):
            self.used = self.line_bytes
        return PARSE_LINE

    cdef void _split(self, const char *c_at) noexcept:
        """Splits the line at c_at into words, without the line feed and a carriage return before it."""
        cdef Command *command = &self.command
        cdef const char *c_end = c_at + self.line_bytes - 1
        cdef const char *c_blank
        self.c_split_at = c_at
        if c_end > c_at and (c_end - 1)[0] == c'\r':
            c_end -= 1
        command.argc = 0
        while True:
            c_blank = <const char *> memchr(c_at, c' ', c_end - c_at)
            if command.argc < MAX_ARGS:
                command.args[command.argc] = c_at
                command.arg_bytes[command.argc] = <int32_t> ((c_end if c_blank is NULL else c_blank) - c_at)
            command.argc += 1
            if c_blank is NULL:
                break
            c_at = c_blank + 1
        command.kind = command_kind(command.args[0], command.arg_bytes[0])

    cdef int _body(self, const char *c_at, const char *c_end) noexcept:
        cdef Command *command = &self.command
        cdef Py_ssize_t have = c_end - c_at - self.line_bytes - 4
        cdef int state
        if c_at != self.c_split_at:
            self._split(c_at)
        command.body = c_at + self.line_bytes + 4
        if self.state == AT_SIZE:
            if have < 0:
                return PARSE_MORE
            command.size = load_i32(command.body - 4)
            if command.size <= 0:
                return PARSE_BAD_SIZE
            if command.size > self.limit:
                return PARSE_TOO_BIG
            self.state = AT_BODY
            memset(&command.mpub, 0, sizeof(command.mpub))
        if command_is_batch(command.kind):
            state = mpub_check(&command.mpub, command.body, have, self.max_message, self.limit)
            if state != MPUB_WHOLE:
                return mpub_event(state)
            # It ends with its last message, regardless of the declared size.
            self.used = self.line_bytes + 4 + command.mpub.at
        else:
            if have < command.size:
                return PARSE_MORE
            self.used = self.line_bytes + 4 + command.size
        self.state = AT_LINE
        return PARSE_BODY


cdef int mpub_event(int state) noexcept nogil:
    if state == MPUB_WHOLE:
        return PARSE_BODY
    if state == MPUB_MORE:
        return PARSE_MORE
    if state == MPUB_BAD_COUNT:
        return PARSE_BAD_COUNT
    if state == MPUB_BAD_SIZE:
        return PARSE_BAD_MESSAGE_SIZE
    if state == MPUB_TOO_BIG:
        return PARSE_MESSAGE_TOO_BIG
    return PARSE_OVERRUN
