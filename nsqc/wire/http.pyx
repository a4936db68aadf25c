"""HTTP/1.1 requests: heads and chunked bodies, parsed strictly."""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t
from libc.string cimport memchr, memcmp, memcpy
from posix.strings cimport strncasecmp


# ====================================================================== bytes
# Byte classes of HTTP/1, as in RFC 9110 and Go's net/http.

cdef inline bint is_alphanumeric(unsigned char byte) noexcept nogil:
    return c'a' <= byte <= c'z' or c'A' <= byte <= c'Z' or c'0' <= byte <= c'9'


# Methods and field names.
cdef inline bint is_token(unsigned char byte) noexcept nogil:
    return is_alphanumeric(byte) or byte in b"!#$%&'*+-.^_`|~"


# Field values.
cdef inline bint is_value(unsigned char byte) noexcept nogil:
    return byte == c'\t' or byte >= c' ' and byte != 0x7f


# Request targets. All non-ASCII bytes are allowed, as in Go: clients send names in UTF-8 without escapes.
cdef inline bint is_target(unsigned char byte) noexcept nogil:
    return byte > c' ' and byte != 0x7f


# Host, by the table of Go's httpguts.
cdef inline bint is_host(unsigned char byte) noexcept nogil:
    return is_alphanumeric(byte) or byte in b"!$%&'()*+,-.:;=[]_~"


cdef inline bint is_blank(unsigned char byte) noexcept nogil:
    return byte == c' ' or byte == c'\t'


# ====================================================================== chunks
# The chunked body of an HTTP/1 request, decoded in pieces of any size.
#
# As in Go's net/http, spaces may follow a chunk's size and extensions are skipped; all lines end with CRLF, so no two
# parsers see different chunks. Trailers are checked and dropped: this server does not use them, least of all as
# connection headers.

cdef enum:
    LINE_BYTES = 4096       # longest chunk line, as in Go
    TRAILER_BYTES = 16384   # of all trailers together
    SIZE_DIGITS = 15        # hexadecimal; fits into 64 bits


cdef enum State:
    SIZE            # the digits of a chunk's size
    BLANKS          # spaces after it
    EXTENSION
    SIZE_LF
    DATA
    DATA_CR
    DATA_LF
    NAME            # the first byte of a trailer's line, or the CR of the empty line
    NAME_REST
    CONTENT
    CONTENT_LF
    LAST_LF
    DONE


@cython.final
cdef class Chunks:
    """Decodes one body."""

    cdef State state
    cdef int64_t left       # remaining bytes of this chunk
    cdef Py_ssize_t count   # bytes of the current chunk line, or of all trailers

    @property
    def done(self) -> bool:
        """Whether the body is complete."""
        return self.state == DONE

    def feed(self, bytes data not None, Py_ssize_t at, bytearray body or None) -> int:
        """Decodes data[at:] up to the end of the body; returns the index after the last byte consumed: all unless done.

        Appends to body, if that is not None. Raises ValueError if the chunks are malformed.
        """
        cdef const unsigned char *c_data = <const unsigned char *> PyBytes_AS_STRING(data)
        cdef Py_ssize_t end = len(data)
        cdef Py_ssize_t size
        if at < 0:
            raise IndexError("not within data")
        while at < end and self.state != DONE:
            if self.state == DATA:
                size = min(self.left, end - at)
                if body is not None:
                    append(body, c_data + at, size)
                at += size
                self.left -= size
                if self.left == 0:
                    self.state = DATA_CR
            else:
                self._step(c_data[at])
                at += 1
        return at

    cdef int _step(self, unsigned char byte) except -1:
        """Handles a byte outside chunk data."""
        if self.state <= SIZE_LF:
            return self._step_size(byte)
        if self.state == DATA_CR and byte == c'\r':
            self.state = DATA_LF
        elif self.state == DATA_LF and byte == c'\n':
            self.state = SIZE
            self.count = 0
        elif self.state >= NAME:
            return self._step_trailer(byte)
        else:
            raise ValueError("malformed end of a chunk")
        return 0

    cdef int _step_size(self, unsigned char byte) except -1:
        cdef int digit = hex_digit(byte)
        self.count += 1
        if self.state == SIZE and digit >= 0 and self.count <= SIZE_DIGITS:
            self.left = self.left * 16 + digit
        elif self.state == SIZE_LF and byte == c'\n':
            self.state = DATA if self.left else NAME
            self.count = 0
        elif self.state == SIZE_LF or self.count == 1 or self.count > LINE_BYTES:
            raise ValueError("malformed size of a chunk")
        elif byte == c'\r':
            self.state = SIZE_LF
        elif self.state == EXTENSION and is_value(byte):
            pass
        elif self.state == SIZE and byte == c';':
            self.state = EXTENSION
        elif self.state != EXTENSION and is_blank(byte):
            self.state = BLANKS
        else:
            raise ValueError("malformed size of a chunk")
        return 0

    cdef int _step_trailer(self, unsigned char byte) except -1:
        self.count += 1
        if self.count > TRAILER_BYTES:
            raise ValueError("trailers are too long")
        if self.state == NAME and byte == c'\r':
            self.state = LAST_LF
        elif self.state <= NAME_REST and is_token(byte):
            self.state = NAME_REST
        elif self.state == NAME_REST and byte == c':':
            self.state = CONTENT
        elif self.state == CONTENT and byte == c'\r':
            self.state = CONTENT_LF
        elif self.state == CONTENT and is_value(byte):
            pass
        elif self.state == CONTENT_LF and byte == c'\n':
            self.state = NAME
        elif self.state == LAST_LF and byte == c'\n':
            self.state = DONE
        else:
            raise ValueError("malformed trailer")
        return 0


cdef inline int hex_digit(unsigned char byte) noexcept nogil:
    """The digit's value; -1: not a digit."""
    if c'0' <= byte <= c'9':
        return byte - c'0'
    byte |= 0x20
    return byte - c'a' + 10 if c'a' <= byte <= c'f' else -1


cdef int append(bytearray body, const unsigned char *c_data, Py_ssize_t size) except -1:
    cdef Py_ssize_t before = PyByteArray_GET_SIZE(body)
    PyByteArray_Resize(body, before + size)
    memcpy(PyByteArray_AS_STRING(body) + before, c_data, <size_t> size)
    return 0


# ====================================================================== heads
# Parses the head of an HTTP/1 request as Go's net/http does, and more strictly where two parsers could disagree on
# the end of a request.
#
# Lines end with CRLF or LF. A malformed line, an unknown transfer coding, or contradictory lengths are refused, never
# repaired. Fields that the server does not use, such as Upgrade, are checked and skipped.

cdef enum:
    METHOD_BYTES = 32       # checked prefix of an incomplete line: methods are shorter
    LENGTH_DIGITS = 18      # longest Content-Length that fits into 64 bits

ctypedef bint (*Kind)(unsigned char byte) noexcept nogil


class HeadError(ValueError):
    """A refused head: the status of the answer, and the reason if Go's server gives one."""

    status: int
    reason: str

    def __init__(self, status: int, reason: str = ""):
        super().__init__(reason)
        self.status = status
        self.reason = reason


@cython.final
cdef class Head:
    """The head of a request: its line, and the fields that the server uses."""

    cdef readonly bytes method
    cdef readonly bytes target      # as received
    cdef readonly int minor         # of the version, HTTP/1.minor
    cdef readonly int64_t length    # of the body, bytes; -1: in chunks
    cdef readonly bint keep_alive   # the connection stays open
    cdef readonly bint expects      # Expect: 100-continue
    cdef readonly bytes host        # None without one, in HTTP/1.0
    cdef readonly bytes accept      # several fields are joined; empty without one
    cdef readonly bytes origin      # None without one
    cdef readonly bytes fetch_site  # Sec-Fetch-Site; None without one
    cdef readonly bytes authorization   # None without one; a secret
    cdef readonly bytes publish_id  # X-NSQ-Publish-Id; None without one

    def is_plain_post(self) -> bool:
        """Whether it is a program's POST with a body of known length, on a persistent connection, in HTTP/1.1."""
        return (self.length > 0 and self.keep_alive and self.minor > 0 and not self.expects and self.method == b"POST"
                and self.origin is None and self.fetch_site is None and self.publish_id is None)


cdef struct Fields:
    # State while the lines of a head are parsed.
    Py_ssize_t length_digits    # 0: no Content-Length
    bint chunked
    bint close
    bint keep


def head_end(data: bytes | bytearray, Py_ssize_t start) -> int:
    """The index after the first empty line in data[start:] that follows another line; -1: none yet.

    data: bytes or a bytearray.
    """
    cdef Py_ssize_t size = len(data)
    cdef const unsigned char *c_data = bytes_of(data)
    cdef const unsigned char *c_end = c_data + size
    cdef const unsigned char *c_at
    if not 0 <= start < size:
        return -1
    c_at = c_data + start
    while True:
        c_at = <const unsigned char *> memchr(c_at, c'\n', <size_t> (c_end - c_at))
        if c_at is NULL:
            return -1
        c_at += 1
        if c_at < c_end and c_at[0] == c'\n':
            return c_at + 1 - c_data
        if c_at + 1 < c_end and c_at[0] == c'\r' and c_at[1] == c'\n':
            return c_at + 2 - c_data


def skip_empty_lines(bytes data not None, Py_ssize_t at) -> int:
    """The index of the first byte of data[at:] that is not a line end. Some clients send one after a body."""
    cdef const unsigned char *c_data = bytes_of(data)
    while 0 <= at < len(data) and (c_data[at] == c'\r' or c_data[at] == c'\n'):
        at += 1
    return at


def check_beginning(data: bytes | bytearray) -> bool:
    """Raises HeadError if data cannot begin a valid head: a client of another protocol learns so at once.

    Returns whether the request line is complete.
    """
    cdef Py_ssize_t size = len(data)
    cdef const unsigned char *c_data = bytes_of(data)
    cdef const unsigned char *c_line = <const unsigned char *> memchr(c_data, c'\n', <size_t> size)
    cdef Py_ssize_t method
    if c_line is not NULL:
        read_line(Head.__new__(Head), c_data, line_size(c_data, c_line - c_data))
        return True
    size = min(size, METHOD_BYTES)
    method = span(c_data, size, is_token)
    if method < size and (method == 0 or c_data[method] != c' '):
        raise HeadError(400)
    return False


def parse_head(bytes data not None) -> Head:
    """Parses a head: the request line, fields, an empty line. Raises HeadError."""
    cdef const unsigned char *c_at = bytes_of(data)
    cdef const unsigned char *c_end = c_at + len(data)
    cdef const unsigned char *c_line
    cdef Fields fields = Fields(0, False, False, False)
    cdef Head head = Head.__new__(Head)
    cdef Py_ssize_t size
    head.accept = b""
    c_line = line_end(c_at, c_end)
    read_line(head, c_at, line_size(c_at, c_line - c_at))
    while True:
        c_at = c_line + 1
        c_line = line_end(c_at, c_end)
        size = line_size(c_at, c_line - c_at)
        if size == 0:
            break
        read_field(head, &fields, c_at, size)
    if head.host is None and head.minor > 0:
        raise HeadError(400, "missing required Host header")
    if fields.chunked:
        # A proxy in front may see another end of the body.
        if fields.length_digits or head.minor == 0:
            raise HeadError(400)
        head.length = -1
    head.keep_alive = not fields.close and (head.minor > 0 or fields.keep)
    return head


cdef const unsigned char *bytes_of(data) except NULL:
    if isinstance(data, bytes):
        return <const unsigned char *> PyBytes_AS_STRING(data)
    return <const unsigned char *> PyByteArray_AS_STRING(data)


# ---------------------------------------------------------------------- lines

cdef const unsigned char *line_end(const unsigned char *c_at, const unsigned char *c_end) except NULL:
    """The LF that ends the line at c_at."""
    cdef const unsigned char *c_line = NULL
    if c_at < c_end:
        c_line = <const unsigned char *> memchr(c_at, c'\n', <size_t> (c_end - c_at))
    if c_line is NULL:
        raise HeadError(400)
    return c_line


cdef inline Py_ssize_t line_size(const unsigned char *c_at, Py_ssize_t size) noexcept nogil:
    """The line without its end: one CR before the LF is part of the end."""
    return size - 1 if size > 0 and c_at[size - 1] == c'\r' else size


cdef inline Py_ssize_t span(const unsigned char *c_at, Py_ssize_t size, Kind is_kind) noexcept nogil:
    """Length of the text's prefix of this byte class."""
    cdef Py_ssize_t at = 0
    while at < size and is_kind(c_at[at]):
        at += 1
    return at


cdef int read_line(Head head, const unsigned char *c_at, Py_ssize_t size) except -1:
    """METHOD TARGET HTTP/1.x, with one space between them."""
    cdef Py_ssize_t method = span(c_at, size, is_token)
    cdef const unsigned char *c_target = c_at + method + 1
    cdef const unsigned char *c_version
    cdef Py_ssize_t target
    if method == 0 or method == size or c_at[method] != c' ':
        raise HeadError(400)
    size -= method + 1
    target = span(c_target, size, is_target)
    if target == 0 or size - target != 9 or c_target[target] != c' ':
        raise HeadError(400)
    c_version = c_target + target + 1
    if (memcmp(c_version, b"HTTP/", 5) or c_version[6] != c'.' or not c'0' <= c_version[5] <= c'9'
            or not c'0' <= c_version[7] <= c'9'):
        raise HeadError(400)
    if c_version[5] != c'1':
        raise HeadError(505, "unsupported protocol version")
    head.method = (<const char *> c_at)[:method]
    head.target = (<const char *> c_target)[:target]
    head.minor = c_version[7] - c'0'
    return 0


cdef int read_field(Head head, Fields *fields, const unsigned char *c_name, Py_ssize_t size) except -1:
    """NAME: VALUE. A continuation line begins with a space, which no name does."""
    cdef Py_ssize_t name = span(c_name, size, is_token)
    cdef const unsigned char *c_value = c_name + name + 1
    if name == 0 or name == size or c_name[name] != c':':
        raise HeadError(400)
    size -= name + 1
    while size > 0 and is_blank(c_value[0]):
        c_value += 1
        size -= 1
    while size > 0 and is_blank(c_value[size - 1]):
        size -= 1
    if span(c_value, size, is_value) != size:
        raise HeadError(400)
    if is_name(c_name, name, b"host", 4):
        if head.host is not None:
            raise HeadError(400, "too many Host headers")
        if span(c_value, size, is_host) != size:
            raise HeadError(400, "malformed Host header")
        head.host = text(c_value, size)
    elif is_name(c_name, name, b"content-length", 14):
        read_length(head, fields, c_value, size)
    elif is_name(c_name, name, b"transfer-encoding", 17):
        # One field with one coding, as in Go and nginx: a list could be read in several ways.
        if fields.chunked or not is_name(c_value, size, b"chunked", 7):
            raise HeadError(501, "Unsupported transfer encoding")
        fields.chunked = True
    elif is_name(c_name, name, b"connection", 10):
        read_connection(fields, c_value, size)
    elif is_name(c_name, name, b"expect", 6):
        if size > 0 and not is_name(c_value, size, b"100-continue", 12):
            raise HeadError(417)
        head.expects = size > 0
    elif is_name(c_name, name, b"accept", 6):
        head.accept = head.accept + b"," + text(c_value, size) if head.accept else text(c_value, size)
    elif is_name(c_name, name, b"origin", 6):
        head.origin = text(c_value, size)
    elif is_name(c_name, name, b"sec-fetch-site", 14):
        head.fetch_site = text(c_value, size)
    elif is_name(c_name, name, b"authorization", 13):
        if head.authorization is None:      # the first one counts, as in Go
            head.authorization = text(c_value, size)
    elif is_name(c_name, name, b"x-nsq-publish-id", 16):
        head.publish_id = text(c_value, size)
    return 0


cdef inline bint is_name(const unsigned char *c_at, Py_ssize_t size, const char *c_lower, Py_ssize_t length) noexcept:
    return size == length and strncasecmp(<const char *> c_at, c_lower, <size_t> length) == 0


cdef inline bytes text(const unsigned char *c_at, Py_ssize_t size):
    return (<const char *> c_at)[:size]


cdef int read_length(Head head, Fields *fields, const unsigned char *c_value, Py_ssize_t size) except -1:
    """Digits only; repeated fields must agree."""
    cdef int64_t length = 0
    cdef Py_ssize_t at
    if not 0 < size <= LENGTH_DIGITS:
        raise HeadError(400)
    for at in range(size):
        if not c'0' <= c_value[at] <= c'9':
            raise HeadError(400)
        length = length * 10 + (c_value[at] - c'0')
    if fields.length_digits and (length != head.length or size != fields.length_digits):
        raise HeadError(400)
    fields.length_digits = size
    head.length = length
    return 0


cdef void read_connection(Fields *fields, const unsigned char *c_value, Py_ssize_t size) noexcept:
    """A list of words. Words other than close and keep-alive name hop-by-hop fields, which concern proxies only."""
    cdef Py_ssize_t begin = 0
    cdef Py_ssize_t end, next
    while begin < size:
        next = begin
        while next < size and c_value[next] != c',':
            next += 1
        end = next
        while begin < end and is_blank(c_value[begin]):
            begin += 1
        while end > begin and is_blank(c_value[end - 1]):
            end -= 1
        if is_name(c_value + begin, end - begin, b"close", 5):
            fields.close = True
        elif is_name(c_value + begin, end - begin, b"keep-alive", 10):
            fields.keep = True
        begin = next + 1
