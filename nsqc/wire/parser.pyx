"""Bytes of clients to commands: names, the input buffer, the payload of MPUB, the resumable parser. See the .pxd."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcmp, memcpy, memmove, memset

from nsqc.wire.const cimport MAX_LINE_BYTES, MAX_NAME_BYTES
from nsqc.wire.hton cimport load_i32


# ====================================================================== names
# Topic and channel names: validity and the #ephemeral suffix. Knows only bytes.

EPHEMERAL = "#ephemeral"    # suffix of topics and channels that store nothing on disk

cdef bytes ENDING = EPHEMERAL.encode()
cdef const char *c_ending = ENDING
cdef Py_ssize_t ENDING_BYTES = len(ENDING)

cdef unsigned char ALLOWED[256]


cdef void fill_allowed() noexcept:
    cdef int code
    for code in range(256):
        ALLOWED[code] = (
            c'a' <= code <= c'z' or c'A' <= code <= c'Z' or c'0' <= code <= c'9'
            or code == c'.' or code == c'_' or code == c'-'
        )


fill_allowed()


cdef bint name_is_ephemeral(const char *c_name, Py_ssize_t length) noexcept nogil:
    return (length > ENDING_BYTES
            and memcmp(c_name + length - ENDING_BYTES, c_ending, <size_t> ENDING_BYTES) == 0)


cdef bint name_is_valid(const char *c_name, Py_ssize_t length) noexcept nogil:
    cdef Py_ssize_t at
    if length < 1 or length > MAX_NAME_BYTES:
        return False
    if name_is_ephemeral(c_name, length):
        length -= ENDING_BYTES
    for at in range(length):
        if not ALLOWED[<unsigned char> c_name[at]]:
            return False
    return True


def is_valid_name(bytes name not None) -> bool:
    """Whether name is a topic or channel name: 1 to 64 of . a-z A-Z 0-9 _ -; "#ephemeral" may follow, and counts."""
    return name_is_valid(name, len(name))


def is_ephemeral(bytes name not None) -> bool:
    """Whether a valid name ends with #ephemeral."""
    return name_is_ephemeral(name, len(name))


# ====================================================================== input buffer
# Receive buffer of a connection. Owns no memory while empty: idle connections cost nothing here.

cdef extern from *:
    """
    static long nsqc_inbuf_alive = 0;
    #if NSQC_DEBUG
    #define NSQC_COUNT_INBUF(n) (nsqc_inbuf_alive += (n))
    #else
    #define NSQC_COUNT_INBUF(n) ((void) 0)
    #endif
    """
    long nsqc_inbuf_alive
    void NSQC_COUNT_INBUF(long) nogil


cdef int inbuf_append(InBuf *inbuf, const char *c_from, Py_ssize_t length) noexcept nogil:
    cdef Py_ssize_t need = inbuf.length + length
    cdef Py_ssize_t room = inbuf.room
    cdef char *c_grown
    if need > room:
        room = max(need, 2 * room)
        c_grown = <char *> realloc(inbuf.data, <size_t> room)
        if c_grown is NULL:
            return -1
        if inbuf.data is NULL:
            NSQC_COUNT_INBUF(1)
        inbuf.data = c_grown
        inbuf.room = room
    memcpy(inbuf.data + inbuf.length, c_from, <size_t> length)
    inbuf.length = need
    return 0


cdef void inbuf_drop(InBuf *inbuf, Py_ssize_t length) noexcept nogil:
    if length >= inbuf.length:
        inbuf_free(inbuf)
    elif length > 0:
        inbuf.length -= length
        memmove(inbuf.data, inbuf.data + length, <size_t> inbuf.length)


cdef void inbuf_free(InBuf *inbuf) noexcept nogil:
    if inbuf.data is not NULL:
        NSQC_COUNT_INBUF(-1)
    free(inbuf.data)
    inbuf.data = NULL
    inbuf.length = inbuf.room = 0


def alive() -> int:
    """Buffers that own memory; always 0 in a release build, which does not count them."""
    return nsqc_inbuf_alive


# ====================================================================== multi-publish
# Checks multi-publish bodies as they arrive. Creates no messages; knows only bytes.

cdef extern from "<string.h>":
    void *memrchr(const void *s, int c, size_t n) nogil


cdef int64_t mpub_bytes(const MpubCheck *check) noexcept nogil:
    return check.at - 4 - 4 * <int64_t> check.index


cdef int mpub_check(MpubCheck *check, const char *c_body, int64_t have, int64_t max_message,
                    int64_t max_body) noexcept nogil:
    """Continues where the last call stopped; `have` bytes of the body are at c_body. No message may exceed max_message
    bytes, the messages in total (without their sizes) max_body bytes, and the count may not exceed what could fit
    there."""
    cdef int state
    if check.count == 0:
        if have < 4:
            return MPUB_MORE
        check.value = load_i32(c_body)
        # The smallest message takes five bytes, four of them for its size.
        if check.value <= 0 or check.value > (max_body - 4) // 5:
            return MPUB_BAD_COUNT
        check.count = check.value
        check.at = 4
    while check.index < check.count:
        state = mpub_next(check, c_body + check.at, have - check.at, max_message, max_body)
        if state != MPUB_WHOLE:
            return state
        if check.at + 4 + check.value > have:
            return MPUB_MORE
        mpub_passed(check)
    return MPUB_WHOLE


cdef int mpub_next(MpubCheck *check, const char *c_at, int64_t have, int64_t max_message,
                   int64_t max_body) noexcept nogil:
    if have < 4:
        return MPUB_MORE
    check.value = load_i32(c_at)
    if check.value <= 0:
        return MPUB_BAD_SIZE
    if check.value > max_message:
        return MPUB_TOO_BIG
    # Sizes do not count: a client that omits them from the declared size may send messages up to the limit.
    if mpub_bytes(check) + check.value > max_body:
        return MPUB_OVERRUN
    return MPUB_WHOLE


cdef bint mpub_passed(MpubCheck *check) noexcept nogil:
    check.at += 4 + <int64_t> check.value
    check.index += 1
    return check.index == check.count


def has_long_line(bytes body not None, Py_ssize_t end, Py_ssize_t limit) -> bool:
    """Whether any line that ends before end has more than limit bytes."""
    cdef const char *c_at = <const char *> body
    cdef const char *c_end = c_at + min(end, len(body))
    cdef const char *c_feed
    while c_end - c_at > limit:
        # The last position where this line may end. Earlier ends are short enough.
        c_feed = <const char *> memrchr(c_at, c'\n', limit + 1)
        if c_feed is NULL:
            return True
        c_at = c_feed + 1
    return False


def check(bytes body not None, max_msg_size: int, max_body_size: int) -> int:
    """Where the messages of a complete body end; -1 for a bad count, -2 for a bad message."""
    cdef MpubCheck progress
    progress.count = progress.index = progress.value = 0
    progress.at = 0
    if mpub_check(&progress, body, len(body), max_msg_size, max_body_size) == MPUB_WHOLE:
        return progress.at
    return -1 if progress.count == 0 else -2


# ====================================================================== parser
# The V2 command parser. Knows only bytes: no sockets, no topics, no rules about the order of commands.

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
        if memcmp(c_name, b"DEAD", 4) == 0:
            return CMD_DEAD
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
