# JSON by the rules of Go's encoding/json, read from Python (see the .pyx), and JSON texts, written from C.

from libc.stdint cimport int64_t, uint32_t

cdef enum:
    MAX_DEPTH = 10000       # Go's
    MAX_FIELDS = 32
    MAX_NAME_BYTES = 64

cdef enum Kind:
    KIND_STRING
    KIND_BOOL
    KIND_INT32
    KIND_INT64

# A requested field, and the position of its value in the text.
cdef struct Field:
    const char *name        # lower-case ASCII
    Py_ssize_t name_bytes
    int kind                # Kind
    Py_ssize_t begin        # 0: absent
    Py_ssize_t end


# The length of the UTF-8 character at c_at; 1, and U+FFFD, if it is invalid.
cdef int utf8_bytes(const unsigned char *c_at, Py_ssize_t have, uint32_t *rune) noexcept nogil
# The size of a text as put_escaped writes it; -1: not UTF-8.
cdef int64_t escaped_bytes(const unsigned char *c_at, int64_t length) noexcept nogil
# Both return the end of what they write: a text for the inside of a JSON string, and bytes as base64.
cdef char *put_escaped(char *c_to, const char *c_from, int64_t length) noexcept nogil
cdef char *put_base64(char *c_to, const unsigned char *c_from, int64_t length) noexcept nogil
