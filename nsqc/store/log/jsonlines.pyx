"""Records as lines of JSON. See the .pxd."""

from libc.errno cimport ENOMEM
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy

from nsqc.store.guid cimport guid_after, guid_write
from nsqc.store.log.buffer cimport buffer_room
from nsqc.store.log.frame cimport RECORD_SIZE, Frame, frame_origin, record_length
from nsqc.wire.gojson cimport utf8_bytes
from nsqc.wire.hton cimport load_i32

cdef enum:
    LINE_BYTES = 160            # most bytes of a line, excluding its origin and its body
    ORIGIN_KEY = 10             # bytes of ,"origin":

cdef uint64_t HIGH_BITS = 0x8080808080808080
cdef uint64_t ONES = 0x0101010101010101
cdef const char *HEX = b"0123456789abcdef"
cdef const char *BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


cdef int head_of_line(char *c_to, const Frame *frame, int64_t index, bint is_text) noexcept nogil:
    """Writes a line up to the body; returns the number of bytes."""
    cdef char c_id[16]
    guid_write(guid_after(frame.id, index), c_id)
    return snprintf(c_to, LINE_BYTES, b"{\"offset\":%lld,\"timestamp\":%lld,\"id\":\"%.16s\",\"attempts\":0,\"%s\":\"",
                    <long long> (frame.first + index), <long long> frame.time_ns, c_id,
                    <const char *> b"body" if is_text else <const char *> b"body_base64")


cdef inline int64_t origin_bytes(const char *c_origin) noexcept nogil:
    """Bytes of an origin's field, with comma and key; the origin may be NULL."""
    return ORIGIN_KEY + record_length(c_origin) - RECORD_SIZE if c_origin is not NULL else 0


cdef const char *line_origin(const char *c_frame, const Frame *frame, int64_t index) noexcept nogil:
    """The origin of a record. NULL: it has none, or one that is not of one line, as no daemon writes it."""
    cdef const char *c_origin = frame_origin(c_frame, frame, index)
    cdef int64_t length, at
    if c_origin is NULL:
        return NULL
    length = record_length(c_origin) - RECORD_SIZE
    c_origin += RECORD_SIZE
    if length < 2 or c_origin[0] != c"{" or c_origin[length - 1] != c"}":
        return NULL
    for at in range(length):
        if <unsigned char> c_origin[at] < 0x20:
            return NULL
    if escaped_bytes(<const unsigned char *> c_origin, length) < 0:
        return NULL         # not UTF-8
    return c_origin - RECORD_SIZE


cdef int64_t line_bytes(const char *c_frame, const Frame *frame, const char *c_record, int64_t index) noexcept nogil:
    cdef char[LINE_BYTES] head
    cdef int64_t length = <int64_t> <uint32_t> load_i32(c_record)
    cdef int64_t body = escaped_bytes(<const unsigned char *> c_record + RECORD_SIZE, length)
    cdef int64_t origin = origin_bytes(line_origin(c_frame, frame, index))
    if body < 0:
        return origin + head_of_line(head, frame, index, False) + (length + 2) // 3 * 4 + 3
    return origin + head_of_line(head, frame, index, True) + body + 3


cdef int put_line(Buffer *text, const char *c_frame, const Frame *frame, const char *c_record,
                  int64_t index) noexcept nogil:
    cdef int64_t length = <int64_t> <uint32_t> load_i32(c_record)
    cdef const char *c_body = c_record + RECORD_SIZE
    cdef const char *c_origin = line_origin(c_frame, frame, index)
    cdef int64_t body = escaped_bytes(<const unsigned char *> c_body, length)
    cdef char *c_to
    if buffer_room(text, LINE_BYTES + origin_bytes(c_origin) + (body if body >= 0 else (length + 2) // 3 * 4)) < 0:
        return ENOMEM
    c_to = text.c_data + text.length
    c_to += head_of_line(c_to, frame, index, body >= 0)
    if body < 0:
        c_to = put_base64(c_to, <const unsigned char *> c_body, length)
    elif body == length:
        memcpy(c_to, c_body, <size_t> body)
        c_to += body
    else:
        c_to = put_escaped(c_to, c_body, length)
    c_to[0] = c'"'
    c_to += 1
    if c_origin is not NULL:
        memcpy(c_to, b",\"origin\":", ORIGIN_KEY)
        memcpy(c_to + ORIGIN_KEY, c_origin + RECORD_SIZE, <size_t> (record_length(c_origin) - RECORD_SIZE))
        c_to += origin_bytes(c_origin)
    memcpy(c_to, b"}\n", 2)
    text.length = c_to + 2 - text.c_data
    return 0


cdef inline bint is_plain(const unsigned char *c_at) noexcept nogil:
    """Whether eight bytes are ASCII that needs no escaping: no quote, backslash or control character."""
    cdef uint64_t text, quote, backslash
    memcpy(&text, c_at, 8)
    quote = text ^ (ONES * <uint64_t> c'"')
    backslash = text ^ (ONES * <uint64_t> c"\\")
    # A subtraction sets the high bit of each byte that is too low, and its borrow may set that of the next higher one.
    # Then all eight are checked one by one, as are those that are not ASCII.
    return ((text | (text - ONES * 0x20) | (quote - ONES) | (backslash - ONES)) & HIGH_BITS) == 0


cdef int64_t escaped_bytes(const unsigned char *c_at, int64_t length) noexcept nogil:
    """Size of a text as put_escaped writes it; -1: not UTF-8."""
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
    """Writes a text for the inside of a JSON string; returns its end."""
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
