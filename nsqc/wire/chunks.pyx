"""The chunked body of an HTTP/1 request, decoded in pieces of any size.

As in Go's net/http, spaces may follow a chunk's size and extensions are skipped; all lines end with CRLF, so no two
parsers see different chunks. Trailers are checked and dropped: this server does not use them, least of all as
connection headers.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING
from libc.string cimport memcpy

from nsqc.wire.httpbytes cimport is_blank, is_token, is_value

cdef enum:
    LINE_BYTES = 4096       # longest chunk line, as in Go
    TRAILER_BYTES = 16384   # of all trailers together
    SIZE_DIGITS = 15        # hexadecimal; fits into 64 bits


@cython.final
cdef class Chunks:
    """Decodes one body. See the .pxd."""

    @property
    def done(self) -> bool:
        """Whether the body is complete."""
        return self.state == DONE

    def feed(self, bytes data not None, Py_ssize_t at, bytearray body) -> int:
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
