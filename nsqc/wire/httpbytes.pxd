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
