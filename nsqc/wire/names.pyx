"""Topic and channel names: validity and the #ephemeral suffix. Knows only bytes."""

from libc.string cimport memcmp

from nsqc.wire.const cimport MAX_NAME_BYTES

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
