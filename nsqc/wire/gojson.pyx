"""JSON as Go's encoding/json decodes it into structs and slices: nsqd's clients depend on its rules.

Keys match regardless of case, null leaves a value unchanged, unknown fields are ignored at any depth up to 10,000,
invalid UTF-8 and lone surrogates become U+FFFD, and an integer must not have a fraction or exponent.

As in Go's scanner, everything is checked first, in one pass without recursion. Python objects are created only for
requested values: a body of megabytes takes a few milliseconds regardless of its contents.
"""

from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

STRING, BOOL, INT32, INT64 = KIND_STRING, KIND_BOOL, KIND_INT32, KIND_INT64


class GoJSONError(ValueError):
    """The text is not JSON, or a value is not of the wanted kind."""


def decode_struct(bytes text not None, kinds: dict[str, int]) -> dict[str, str | bool | int]:
    """The members of an object that are in kinds (name to STRING, BOOL, INT32 or INT64) and not null.

    Names in kinds are lower-case ASCII. Of several members with one name, the last counts. Raises GoJSONError.
    """
    cdef Field fields[MAX_FIELDS]
    cdef Field *field
    cdef int count = 0
    cdef const char *c_text = text
    cdef Py_ssize_t end = len(text)
    cdef Py_ssize_t at = blank(c_text, 0, end)
    cdef Py_ssize_t begin
    cdef list names = [name.encode() for name in kinds]
    for name, kind in zip(names, kinds.values(), strict=True):
        if count == MAX_FIELDS or len(name) > MAX_NAME_BYTES:
            raise ValueError("too many fields, or too long a name")
        fields[count] = Field(name, len(name), kind, 0, 0)
        count += 1
    if at == end or c_text[at] != c'{':
        only_null(c_text, at, end)
        return {}
    at = blank(c_text, at + 1, end)
    while at < end and c_text[at] != c'}':
        begin = at
        at = skip_string(c_text, at, end)
        field = find(c_text, begin + 1, at - 1, fields, count)
        begin = blank(c_text, expect(c_text, blank(c_text, at, end), end, c':'), end)
        at = skip_value(c_text, begin, end, 1)
        if field is not NULL and c_text[begin] != c'n':
            check_kind(c_text, begin, at, field.kind)
            field.begin = begin
            field.end = at
        at = blank(c_text, at, end)
        if at < end and c_text[at] == c',':
            at = blank(c_text, at + 1, end)
            if at == end or c_text[at] != c'"':
                raise GoJSONError("a key is missing")
        elif at == end or c_text[at] != c'}':
            raise GoJSONError("an object is not closed")
    ends(c_text, expect(c_text, at, end, c'}'), end)
    return {name: value_of(c_text, fields[at].begin, fields[at].end, fields[at].kind)
            for at, name in enumerate(kinds) if fields[at].begin}


def decode_strings(bytes text not None) -> list[str]:
    """An array of strings; null is an empty array, and within it an empty string. Raises GoJSONError."""
    cdef const char *c_text = text
    cdef Py_ssize_t end = len(text)
    cdef Py_ssize_t at = blank(c_text, 0, end)
    cdef Py_ssize_t begin
    cdef list strings = []
    if at == end or c_text[at] != c'[':
        only_null(c_text, at, end)
        return strings
    at = blank(c_text, at + 1, end)
    if at < end and c_text[at] == c']':
        ends(c_text, at + 1, end)
        return strings
    while True:
        begin = at
        at = skip_value(c_text, begin, end, 1)
        if c_text[begin] == c'n':
            strings.append("")
        else:
            check_kind(c_text, begin, at, KIND_STRING)
            strings.append(value_of(c_text, begin, at, KIND_STRING))
        at = blank(c_text, at, end)
        if at < end and c_text[at] == c',':
            at = blank(c_text, at + 1, end)
            continue
        ends(c_text, expect(c_text, at, end, c']'), end)
        return strings


# ---------------------------------------------------------------------- checking

cdef inline Py_ssize_t blank(const char *c_text, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    """The position after white space."""
    while at < end and (c_text[at] == c' ' or c_text[at] == c'\n' or c_text[at] == c'\t' or c_text[at] == c'\r'):
        at += 1
    return at


cdef Py_ssize_t expect(const char *c_text, Py_ssize_t at, Py_ssize_t end, char byte) except -1:
    if at == end or c_text[at] != byte:
        raise GoJSONError(f"{chr(byte)} is missing at byte {at}")
    return at + 1


cdef int ends(const char *c_text, Py_ssize_t at, Py_ssize_t end) except -1:
    if blank(c_text, at, end) != end:
        raise GoJSONError("something follows the value")
    return 0


cdef int only_null(const char *c_text, Py_ssize_t at, Py_ssize_t end) except -1:
    """Accepts null as the whole text; anything else is an error."""
    ends(c_text, skip_value(c_text, at, end, 0), end)
    if c_text[at] != c'n':
        raise GoJSONError("the value is of the wrong kind")
    return 0


cdef Py_ssize_t skip_value(const char *c_text, Py_ssize_t at, Py_ssize_t end, int depth) except -1:
    """The position after the value at at, which is nested in depth objects and arrays."""
    cdef char opened[MAX_DEPTH]     # what each level was opened with
    cdef int base = depth
    while True:
        # A value begins at at.
        if at == end:
            raise GoJSONError("a value is missing")
        if c_text[at] == c'{' or c_text[at] == c'[':
            if depth == MAX_DEPTH:
                raise GoJSONError("it is nested too deeply")
            opened[depth] = c_text[at]
            depth += 1
            at = blank(c_text, at + 1, end)
            if at < end and c_text[at] == opened[depth - 1] + 2:      # } is { + 2, and ] is [ + 2
                at += 1
                depth -= 1
            else:
                if opened[depth - 1] == c'{':
                    at = skip_key(c_text, at, end)
                continue
        else:
            at = skip_scalar(c_text, at, end)
        # A value ended at at.
        while True:
            if depth == base:
                return at
            at = blank(c_text, at, end)
            if at < end and c_text[at] == c',':
                at = blank(c_text, at + 1, end)
                if opened[depth - 1] == c'{':
                    at = skip_key(c_text, at, end)
                break
            at = expect(c_text, at, end, opened[depth - 1] + 2)
            depth -= 1


cdef Py_ssize_t skip_key(const char *c_text, Py_ssize_t at, Py_ssize_t end) except -1:
    """The position of the value of the member at at."""
    at = skip_string(c_text, at, end)
    return blank(c_text, expect(c_text, blank(c_text, at, end), end, c':'), end)


cdef Py_ssize_t skip_scalar(const char *c_text, Py_ssize_t at, Py_ssize_t end) except -1:
    cdef char first = c_text[at]
    if first == c'"':
        return skip_string(c_text, at, end)
    if first == c't':
        return skip_word(c_text, at, end, b"true", 4)
    if first == c'f':
        return skip_word(c_text, at, end, b"false", 5)
    if first == c'n':
        return skip_word(c_text, at, end, b"null", 4)
    return skip_number(c_text, at, end)


cdef Py_ssize_t skip_word(const char *c_text, Py_ssize_t at, Py_ssize_t end, const char *c_word,
                          Py_ssize_t length) except -1:
    if end - at < length or memcmp(c_text + at, c_word, <size_t> length) != 0:
        raise GoJSONError(f"invalid value at byte {at}")
    return at + length


cdef Py_ssize_t skip_string(const char *c_text, Py_ssize_t at, Py_ssize_t end) except -1:
    """The position after the string at at: any bytes but control characters. Invalid UTF-8 is not an error."""
    cdef int _digit
    at = expect(c_text, at, end, c'"')
    while at < end and c_text[at] != c'"':
        if <unsigned char> c_text[at] < 0x20:
            raise GoJSONError(f"control character in a string at byte {at}")
        if c_text[at] != c'\\':
            at += 1
            continue
        at += 1
        if at == end:
            break
        if c_text[at] == c'u':
            for _digit in range(4):
                at += 1
                if at == end or not is_hex(c_text[at]):
                    raise GoJSONError(f"invalid escape at byte {at}")
        elif not is_escape(c_text[at]):
            raise GoJSONError(f"invalid escape at byte {at}")
        at += 1
    return expect(c_text, at, end, c'"')


cdef inline bint is_hex(char byte) noexcept nogil:
    return c'0' <= byte <= c'9' or c'a' <= byte <= c'f' or c'A' <= byte <= c'F'


cdef inline bint is_escape(char byte) noexcept nogil:
    return (byte == c'"' or byte == c'\\' or byte == c'/' or byte == c'b' or byte == c'f' or byte == c'n'
            or byte == c'r' or byte == c't')


cdef inline Py_ssize_t digits_from(const char *c_text, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    """The position after the digits at at."""
    while at < end and c'0' <= c_text[at] <= c'9':
        at += 1
    return at


cdef Py_ssize_t some_digits(const char *c_text, Py_ssize_t at, Py_ssize_t end) except -1:
    """The position after the digits at at, at least one."""
    cdef Py_ssize_t after = digits_from(c_text, at, end)
    if after == at:
        raise GoJSONError(f"a digit is missing at byte {at}")
    return after


cdef Py_ssize_t skip_number(const char *c_text, Py_ssize_t at, Py_ssize_t end) except -1:
    if at < end and c_text[at] == c'-':
        at += 1
    # No digit may follow a leading zero.
    at = at + 1 if at < end and c_text[at] == c'0' else some_digits(c_text, at, end)
    if at < end and c_text[at] == c'.':
        at = some_digits(c_text, at + 1, end)
    if at < end and (c_text[at] == c'e' or c_text[at] == c'E'):
        at += 1
        if at < end and (c_text[at] == c'+' or c_text[at] == c'-'):
            at += 1
        at = some_digits(c_text, at, end)
    return at


# ---------------------------------------------------------------------- names and values, after checking

cdef Field *find(const char *c_text, Py_ssize_t at, Py_ssize_t end, Field *fields, int count) noexcept:
    """The field for the key between at and end, or NULL."""
    cdef char name[MAX_NAME_BYTES]
    cdef Py_ssize_t length = 0
    cdef uint32_t rune
    cdef int index
    while at < end:
        rune = next_rune(c_text, &at, end)
        if c'A' <= rune <= c'Z':
            rune += 32
        elif rune == 0x17F:     # this one and the next fold to s and k; no others fold to ASCII
            rune = c's'
        elif rune == 0x212A:
            rune = c'k'
        if rune >= 0x80 or length == MAX_NAME_BYTES:
            return NULL
        name[length] = <char> rune
        length += 1
    for index in range(count):
        if fields[index].name_bytes == length and memcmp(fields[index].name, name, <size_t> length) == 0:
            return &fields[index]
    return NULL


cdef int check_kind(const char *c_text, Py_ssize_t at, Py_ssize_t end, int kind) except -1:
    cdef char first = c_text[at]
    cdef int64_t number
    cdef bint fits
    if kind == KIND_STRING:
        fits = first == c'"'
    elif kind == KIND_BOOL:
        fits = first == c't' or first == c'f'
    else:
        fits = integer(c_text, at, end, &number)
        if kind == KIND_INT32:
            fits = fits and INT32_MIN <= number <= INT32_MAX
    if not fits:
        raise GoJSONError("a value is of the wrong kind")
    return 0


cdef bint integer(const char *c_text, Py_ssize_t at, Py_ssize_t end, int64_t *number) noexcept nogil:
    """Whether the value is a number without fraction and exponent that fits into 64 bits."""
    cdef bint negative = c_text[at] == c'-'
    cdef uint64_t value = 0
    if negative:
        at += 1
    # There are no leading zeros, so more digits cannot fit; 19 cannot wrap around.
    if at == end or end - at > 19:
        return False
    while at < end:
        if not c'0' <= c_text[at] <= c'9':
            return False
        value = value * 10 + <uint64_t> (c_text[at] - c'0')
        at += 1
    if value > <uint64_t> INT64_MAX + negative:
        return False
    number[0] = <int64_t> (0 - value if negative else value)
    return True


cdef object value_of(const char *c_text, Py_ssize_t at, Py_ssize_t end, int kind):
    cdef int64_t number = 0
    if kind == KIND_STRING:
        return plain(c_text, at + 1, end - 1)
    if kind == KIND_BOOL:
        return c_text[at] == c't'
    integer(c_text, at, end, &number)
    return number


cdef str plain(const char *c_text, Py_ssize_t at, Py_ssize_t end):
    """The text between the quotes of a string."""
    cdef Py_ssize_t length = 0
    # An invalid byte becomes three.
    cdef char *c_out = <char *> malloc(<size_t> (3 * (end - at) + 1))
    if c_out is NULL:
        raise MemoryError
    try:
        while at < end:
            length += put_rune(c_out + length, next_rune(c_text, &at, end))
        return PyUnicode_DecodeUTF8(c_out, length, NULL)
    finally:
        free(c_out)


cdef uint32_t next_rune(const char *c_text, Py_ssize_t *c_at, Py_ssize_t end) noexcept nogil:
    """The character at at, which moves past it; U+FFFD for an invalid byte or a lone surrogate."""
    cdef Py_ssize_t at = c_at[0]
    cdef uint32_t rune, low
    cdef int length
    if c_text[at] != c'\\':
        length = utf8_bytes(<const unsigned char *> c_text + at, end - at, &rune)
        c_at[0] = at + length
        return rune
    if c_text[at + 1] != c'u':
        c_at[0] = at + 2
        return letter(c_text[at + 1])
    rune = hex4(c_text + at + 2)
    c_at[0] = at + 6
    if not 0xD800 <= rune < 0xE000:
        return rune
    if rune < 0xDC00 and end - at >= 12 and c_text[at + 6] == c'\\' and c_text[at + 7] == c'u':
        low = hex4(c_text + at + 8)
        if 0xDC00 <= low < 0xE000:
            c_at[0] = at + 12
            return 0x10000 + ((rune - 0xD800) << 10) + (low - 0xDC00)
    return 0xFFFD


cdef uint32_t letter(char escaped) noexcept nogil:
    """The character escaped as a backslash and this letter."""
    if escaped == c'b':
        return 8
    if escaped == c'f':
        return 12
    if escaped == c'n':
        return 10
    if escaped == c'r':
        return 13
    if escaped == c't':
        return 9
    return <unsigned char> escaped


cdef uint32_t hex4(const char *c_at) noexcept nogil:
    cdef uint32_t value = 0
    cdef int at
    for at in range(4):
        # Digits are 0x30 to 0x39, letters 0x41 to 0x46 and 0x61 to 0x66.
        value = value * 16 + (<uint32_t> c_at[at] & 15) + (9 if c_at[at] > c'9' else 0)
    return value


cdef int utf8_bytes(const unsigned char *c_at, Py_ssize_t have, uint32_t *rune) noexcept nogil:
    """The length of the character at c_at; 1, and U+FFFD, if it is invalid."""
    cdef uint32_t first = c_at[0]
    cdef uint32_t value, least
    cdef int length, at
    if first < 0x80:
        rune[0] = first
        return 1
    rune[0] = 0xFFFD
    if first >= 0xF8 or first < 0xC0:
        return 1
    length = 4 if first >= 0xF0 else 3 if first >= 0xE0 else 2
    least = 0x10000 if length == 4 else 0x800 if length == 3 else 0x80
    if have < length:
        return 1
    value = first & (0x7F >> length)
    for at in range(1, length):
        if c_at[at] & 0xC0 != 0x80:
            return 1
        value = value << 6 | c_at[at] & 0x3F
    if value < least or value > 0x10FFFF or 0xD800 <= value < 0xE000:
        return 1
    rune[0] = value
    return length


cdef int put_rune(char *c_out, uint32_t rune) noexcept nogil:
    """Writes a character as UTF-8; returns the byte count."""
    if rune < 0x80:
        c_out[0] = <char> rune
        return 1
    if rune < 0x800:
        c_out[0] = <char> (0xC0 | rune >> 6)
        c_out[1] = <char> (0x80 | rune & 0x3F)
        return 2
    if rune < 0x10000:
        c_out[0] = <char> (0xE0 | rune >> 12)
        c_out[1] = <char> (0x80 | rune >> 6 & 0x3F)
        c_out[2] = <char> (0x80 | rune & 0x3F)
        return 3
    c_out[0] = <char> (0xF0 | rune >> 18)
    c_out[1] = <char> (0x80 | rune >> 12 & 0x3F)
    c_out[2] = <char> (0x80 | rune >> 6 & 0x3F)
    c_out[3] = <char> (0x80 | rune & 0x3F)
    return 4


# ---------------------------------------------------------------------- writing

cdef uint64_t HIGH_BITS = 0x8080808080808080
cdef uint64_t ONES = 0x0101010101010101
cdef const char *HEX = b"0123456789abcdef"
cdef const char *BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


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
