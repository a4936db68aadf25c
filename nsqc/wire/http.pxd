# HTTP/1.1 requests: heads and chunked bodies, parsed strictly.

from libc.stdint cimport int64_t


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
# Decoder state of a chunked body.

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


cdef class Chunks:
    cdef State state
    cdef int64_t left       # remaining bytes of this chunk
    cdef Py_ssize_t count   # bytes of the current chunk line, or of all trailers
    cdef int _step(self, unsigned char byte) except -1
    cdef int _step_size(self, unsigned char byte) except -1
    cdef int _step_trailer(self, unsigned char byte) except -1


# ====================================================================== heads
# The head of an HTTP/1 request: its line, and the fields that the server uses.

cdef class Head:
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
