"""Records of a segment as lines of JSON. For Python: see the .pyi.

What takes time runs without the GIL.
"""

import os

from libc.errno cimport EIO, ENOMEM
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from nsqc.store.disk.segment cimport (HEAD_BYTES, RECORD_ATTEMPTS_AT, RECORD_ID_AT, RECORD_TIMESTAMP_AT, Window,
                                      window_fill, window_free)
from nsqc.wire.const cimport SIZE_BYTES
from nsqc.wire.gojson cimport utf8_bytes
from nsqc.wire.hton cimport load_i32, load_i64, load_u16

cdef enum:
    LINE_BYTES = 160            # of a line without its body, at most

cdef uint64_t HIGH_BITS = 0x8080808080808080
cdef uint64_t ONES = 0x0101010101010101
cdef const char *HEX = b"0123456789abcdef"
cdef const char *BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def lines(int data, int64_t offset, int64_t start, int64_t end, int64_t most):
    """See the .pyi."""
    cdef Window window
    cdef Text text
    cdef int error
    memset(&window, 0, sizeof(window))
    memset(&text, 0, sizeof(text))
    window.limit = end
    with nogil:
        error = put_lines(&window, data, &offset, &start, most, &text)
        window_free(&window)
    try:
        if error:
            raise OSError(error, os.strerror(error))
        return text.c_data[:text.length], offset, start
    finally:
        free(text.c_data)


cdef int put_lines(Window *window, int fd, int64_t *offset, int64_t *at, int64_t most, Text *text) noexcept nogil:
    """0 or errno."""
    cdef int64_t length, end = window.limit
    cdef int error
    while at[0] < end and text.length < most:
        error = window_fill(window, fd, at[0], HEAD_BYTES)
        if error:
            return error
        if window.limit - at[0] < HEAD_BYTES:
            return EIO
        length = SIZE_BYTES + <int64_t> load_i32(window.c_data + (at[0] - window.start))
        if length < HEAD_BYTES or length > end - at[0]:
            return EIO
        error = window_fill(window, fd, at[0], length)
        if error:
            return error
        if window.limit - at[0] < length:
            return EIO
        error = put_line(text, window.c_data + (at[0] - window.start), length, offset[0])
        if error:
            return error
        at[0] += length
        offset[0] += 1
    return 0


cdef int head_of_line(char *c_to, const char *c_record, int64_t offset, bint is_text) noexcept nogil:
    """All up to the body; how many bytes."""
    return snprintf(c_to, LINE_BYTES, b"{\"offset\":%lld,\"timestamp\":%lld,\"id\":\"%.16s\",\"attempts\":%u,\"%s\":\"",
                    <long long> offset, <long long> load_i64(c_record + RECORD_TIMESTAMP_AT),
                    c_record + RECORD_ID_AT, <unsigned int> load_u16(c_record + RECORD_ATTEMPTS_AT),
                    <const char *> b"body" if is_text else <const char *> b"body_base64")


cdef int64_t line_bytes(const char *c_record, int64_t length, int64_t offset) noexcept nogil:
    """Of a record's line."""
    cdef char[LINE_BYTES] head
    cdef int64_t body = escaped_bytes(<const unsigned char *> c_record + HEAD_BYTES, length - HEAD_BYTES)
    if body < 0:
        return head_of_line(head, c_record, offset, False) + (length - HEAD_BYTES + 2) // 3 * 4 + 3
    return head_of_line(head, c_record, offset, True) + body + 3


cdef int put_line(Text *text, const char *c_record, int64_t length, int64_t offset) noexcept nogil:
    """0 or errno."""
    cdef int64_t body = escaped_bytes(<const unsigned char *> c_record + HEAD_BYTES, length - HEAD_BYTES)
    cdef int64_t need = LINE_BYTES + (body if body >= 0 else (length - HEAD_BYTES + 2) // 3 * 4)
    cdef char *c_to
    if text.length + need > text.room:
        c_to = <char *> realloc(text.c_data, <size_t> (2 * text.room + need))
        if c_to is NULL:
            return ENOMEM
        text.c_data = c_to
        text.room = 2 * text.room + need
    c_to = text.c_data + text.length
    c_to += head_of_line(c_to, c_record, offset, body >= 0)
    if body < 0:
        c_to = put_base64(c_to, <const unsigned char *> c_record + HEAD_BYTES, length - HEAD_BYTES)
    elif body == length - HEAD_BYTES:
        memcpy(c_to, c_record + HEAD_BYTES, <size_t> body)
        c_to += body
    else:
        c_to = put_escaped(c_to, c_record + HEAD_BYTES, length - HEAD_BYTES)
    memcpy(c_to, b"\"}\n", 3)
    text.length = c_to + 3 - text.c_data
    return 0


cdef inline bint is_plain(const unsigned char *c_at) noexcept nogil:
    """Whether eight bytes are ASCII that JSON takes as it is: no quote, backslash or control character."""
    cdef uint64_t text, quote, backslash
    memcpy(&text, c_at, 8)
    quote = text ^ (ONES * <uint64_t> c'"')
    backslash = text ^ (ONES * <uint64_t> c"\\")
    # A subtraction sets the high bit of each byte that is too low, and perhaps of the one above it, by its borrow. Then
    # all eight are looked at one by one, like those that are not ASCII.
    return ((text | (text - ONES * 0x20) | (quote - ONES) | (backslash - ONES)) & HIGH_BITS) == 0


cdef int64_t escaped_bytes(const unsigned char *c_at, int64_t length) noexcept nogil:
    """Of a text as put_escaped writes it; -1: it is not UTF-8."""
    cdef int64_t at = 0, total = 0
    cdef uint32_t rune
    cdef int step
    cdef unsigned char byte
    while at < length:
        if length - at >= 8 and is_plain(c_at + at):
            at += 8
            total += 8
            continue
        byte = c_at[at]
        step = 1
        if byte >= 0x80:
            step = utf8_bytes(c_at + at, length - at, &rune)
            if step == 1:
                return -1
            total += step
        elif byte == c'"' or byte == c"\\" or byte == c"\n":
            total += 2
        else:
            total += 6 if byte < 0x20 else 1
        at += step
    return total


cdef char *put_escaped(char *c_to, const char *c_from, int64_t length) noexcept nogil:
    """A text inside the quotes of JSON; returns its end."""
    cdef int64_t at = 0
    cdef unsigned char byte
    while at < length:
        if length - at >= 8 and is_plain(<const unsigned char *> c_from + at):
            memcpy(c_to, c_from + at, 8)
            c_to += 8
            at += 8
            continue
        byte = <unsigned char> c_from[at]
        at += 1
        if byte == c'"' or byte == c"\\" or byte == c"\n":
            c_to[0] = c"\\"
            c_to[1] = c"n" if byte == c"\n" else <char> byte
            c_to += 2
        elif byte >= 0x20:
            c_to[0] = <char> byte
            c_to += 1
        else:
            memcpy(c_to, b"\\u00", 4)
            c_to[4] = HEX[byte >> 4]
            c_to[5] = HEX[byte & 15]
            c_to += 6
    return c_to


cdef char *put_base64(char *c_to, const unsigned char *c_from, int64_t length) noexcept nogil:
    """Returns the end."""
    cdef uint32_t three
    while length > 0:
        three = (<uint32_t> c_from[0]) << 16
        if length > 1:
            three |= (<uint32_t> c_from[1]) << 8
        if length > 2:
            three |= c_from[2]
        c_to[0] = BASE64[three >> 18]
        c_to[1] = BASE64[three >> 12 & 63]
        c_to[2] = BASE64[three >> 6 & 63] if length > 1 else c"="
        c_to[3] = BASE64[three & 63] if length > 2 else c"="
        c_to += 4
        c_from += 3
        length -= 3
    return c_to
