"""The text of many rows: what is written for each of them is C, and needs no GIL."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MIN, int64_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

from nsqc.metrics.times cimport BOUNDS, FIRST_BITS, STEP_BITS, Times, TwoTimes, times_join

ABSENT = INT64_MIN

cdef enum:
    NUMBER_BYTES = 32           # the longest number
    BOUND_BYTES = 24            # le="…" of a bucket, at most
    SAMPLE_BYTES = 64           # of a sample beside its name and labels: suffix, le, braces, number, line end
    PIECE_HEAD = 8              # of a chunk: six hexadecimal digits and a line end
    PIECE_TAIL = 2
    MOST_PIECE = 16777215       # bytes, in that many digits

cdef char bounds[15][BOUND_BYTES]
cdef int bound_bytes[15]


def _name_bounds():
    """le="…" of each bucket, in seconds."""
    for bucket in range(BOUNDS + 1):
        text = "+Inf" if bucket == BOUNDS else repr((1 << (FIRST_BITS + STEP_BITS * bucket)) / 1e9)
        label = f'le="{text}"'.encode()
        assert len(label) < BOUND_BYTES
        memcpy(bounds[bucket], PyBytes_AS_STRING(label), <size_t> len(label))
        bound_bytes[bucket] = len(label)


_name_bounds()


# ---------------------------------------------------------------------- rows

@cython.final
cdef class Table:
    """Rows that are collected once and then only read."""

    def __dealloc__(self):
        free_rows(self)

    cdef int64_t add(self, bytes topic, bytes channel) except -1:
        cdef Row *row
        cdef int64_t most = 32 + 2 * (len(topic) + (len(channel) if channel is not None else 0))
        if self.count == self.room:
            self.rows = <Row *> grown(self.rows, &self.room, self.count + 1, sizeof(Row))
        if self.text_length + most > self.text_room:
            self.c_text = <char *> grown(self.c_text, &self.text_room, self.text_length + most, 1)
        row = &self.rows[self.count]
        memset(row, 0, sizeof(Row))
        row.times = -1
        self.text_length += put_label(self.c_text + self.text_length, b"topic", topic)
        if channel is not None:
            self.c_text[self.text_length] = c','
            self.text_length += 1 + put_label(self.c_text + self.text_length + 1, b"channel", channel)
        row.label_end = self.text_length
        self.count += 1
        return self.count - 1

    cdef int add_times(self, int64_t row, const TwoTimes *times) except -1:
        cdef int64_t at = self.rows[row].times
        if at < 0:
            if self.times_count == self.times_room:
                self.times = <TwoTimes *> grown(self.times, &self.times_room, self.times_count + 1, sizeof(TwoTimes))
            at = self.rows[row].times = self.times_count
            self.times_count += 1
            self.times[at] = times[0]
        else:
            times_join(&self.times[at].of[0], &times.of[0])
            times_join(&self.times[at].of[1], &times.of[1])
        return 0


cdef void free_rows(Table table) noexcept nogil:
    free(table.rows)
    free(table.c_text)
    free(table.times)
    table.rows = NULL
    table.c_text = NULL
    table.times = NULL
    table.room = table.text_room = table.times_room = 0


cdef void *grown(void *c_old, int64_t *room, int64_t least, size_t size) except NULL:
    """The array with room for so many, and half as many again."""
    cdef int64_t more = max(least + least // 2, <int64_t> 64)
    cdef void *c_new = realloc(c_old, <size_t> more * size)
    if c_new is NULL:
        raise MemoryError
    room[0] = more
    return c_new


cdef int64_t put_label(char *c_to, bytes name, bytes value) noexcept:
    """name="value"; how many bytes that is: at most 4 more than the name and twice the value."""
    cdef const char *c_value = PyBytes_AS_STRING(value)
    cdef int64_t at = PyBytes_GET_SIZE(name)
    cdef Py_ssize_t index
    memcpy(c_to, PyBytes_AS_STRING(name), <size_t> at)
    c_to[at] = c'='
    c_to[at + 1] = c'"'
    at += 2
    for index in range(PyBytes_GET_SIZE(value)):
        if c_value[index] == c'"' or c_value[index] == c'\\' or c_value[index] == c'\n':
            c_to[at] = c'\\'
            at += 1
        c_to[at] = c'n' if c_value[index] == c'\n' else c_value[index]
        at += 1
    c_to[at] = c'"'
    return at + 1


# ---------------------------------------------------------------------- text

@cython.final
cdef class Text:
    """The samples of several families, one family after the other."""

    def __init__(self, Table first not None, Table second not None, list families not None):
        """families: (table, 0 or 1; column; whether they are durations; head; name of the samples) of each."""
        cdef Family *family
        cdef Table rows
        self.tables = (first, second)
        self.kept = families
        self.families = <Family *> calloc(max(len(families), 1), sizeof(Family))
        if self.families is NULL:
            raise MemoryError
        for table, column, is_times, head, name in families:
            if not 0 <= table < 2 or not 0 <= column < MOST_COLUMNS:
                raise ValueError("no such column")
            family = &self.families[self.count]
            rows = second if table else first
            family.rows = rows.rows
            family.row_count = rows.count
            family.c_text = rows.c_text
            family.times = rows.times
            family.column = column
            family.is_times = is_times
            family.c_head = PyBytes_AS_STRING(head)
            family.head_bytes = PyBytes_GET_SIZE(head)
            family.c_name = PyBytes_AS_STRING(name)
            family.name_bytes = PyBytes_GET_SIZE(name)
            self.count += 1
        self.row = -1

    def __dealloc__(self):
        free(self.families)

    def piece(self, Py_ssize_t size, bint chunked) -> bytes:
        """The next part of the text, at most so many bytes and a little; b"": that was all.

        chunked: framed for HTTP's chunked encoding. Needs no loop.
        """
        cdef bytes out = PyBytes_FromStringAndSize(NULL, size + PIECE_HEAD + PIECE_TAIL)
        cdef char *c_out = PyBytes_AS_STRING(out)
        cdef char c_head[24]
        cdef int64_t length
        if not 0 < size <= MOST_PIECE:
            raise ValueError("no size for a piece")
        with nogil:
            length = self._fill(c_out + PIECE_HEAD, size)
        if length < 0:
            raise ValueError("a row does not fit into a piece")
        if length == 0:
            self._free_tables()
            return b""
        if not chunked:
            return c_out[PIECE_HEAD:PIECE_HEAD + length]
        snprintf(c_head, sizeof(c_head), "%06lx\r\n", <unsigned long> length)
        memcpy(c_out, c_head, PIECE_HEAD)
        memcpy(c_out + PIECE_HEAD + length, b"\r\n", PIECE_TAIL)
        return c_out[:PIECE_HEAD + length + PIECE_TAIL]

    cdef void _free_tables(self) noexcept:
        """Returns the memory of the tables, which takes milliseconds if they are large: here, not where they are dropped."""
        cdef Table first = <Table> self.tables[0], second = <Table> self.tables[1]
        first.count = second.count = 0
        with nogil:
            free_rows(first)
            free_rows(second)

    cdef int64_t _fill(self, char *c_to, int64_t room) noexcept nogil:
        """How many bytes were put there; -1: a single row needs more room."""
        cdef Family *family
        cdef const Row *row
        cdef const char *c_labels
        cdef int64_t labels, length = 0, need
        while self.at < self.count:
            family = &self.families[self.at]
            if self.row < 0:
                if family.head_bytes > room - length:
                    return length if length else -1
                memcpy(c_to + length, family.c_head, <size_t> family.head_bytes)
                length += family.head_bytes
                self.row = 0
            while self.row < family.row_count:
                row = &family.rows[self.row]
                c_labels = family.c_text + (family.rows[self.row - 1].label_end if self.row else 0)
                labels = family.c_text + row.label_end - c_labels
                need = family.name_bytes + labels + SAMPLE_BYTES
                if family.is_times:
                    need *= BOUNDS + 3
                if need > room - length:
                    return length if length else -1
                if family.is_times:
                    if row.times >= 0:
                        length += put_times(c_to + length, family, c_labels, labels,
                                            &family.times[row.times].of[family.column])
                elif row.cells[family.column] != ABSENT:
                    length += put_sample(c_to + length, family, c_labels, labels, row.cells[family.column])
                self.row += 1
            self.at += 1
            self.row = -1
        return length


cdef inline int64_t put(char *c_to, const char *c_from, int64_t length) noexcept nogil:
    memcpy(c_to, c_from, <size_t> length)
    return length


cdef inline int64_t put_number(char *c_to, int64_t value) noexcept nogil:
    """In decimal; how many bytes that is."""
    cdef char c_digits[NUMBER_BYTES]
    cdef int at = NUMBER_BYTES
    cdef uint64_t left = <uint64_t> value if value >= 0 else <uint64_t> 0 - <uint64_t> value
    while True:
        at -= 1
        c_digits[at] = <char> (c'0' + <int> (left % 10))
        left //= 10
        if left == 0:
            break
    if value < 0:
        at -= 1
        c_digits[at] = c'-'
    return put(c_to, c_digits + at, NUMBER_BYTES - at)


cdef inline int64_t put_sample(char *c_to, const Family *family, const char *c_labels, int64_t labels,
                               int64_t value) noexcept nogil:
    cdef int64_t length = put(c_to, family.c_name, family.name_bytes)
    c_to[length] = c'{'
    length += 1
    length += put(c_to + length, c_labels, labels)
    c_to[length] = c'}'
    c_to[length + 1] = c' '
    length += 2
    length += put_number(c_to + length, value)
    c_to[length] = c'\n'
    return length + 1


cdef int64_t put_times(char *c_to, const Family *family, const char *c_labels, int64_t labels,
                       const Times *times) noexcept nogil:
    """The buckets, each with those below it, the count and the sum in seconds."""
    cdef int64_t length = 0
    cdef uint64_t below = 0
    cdef int bucket
    for bucket in range(BOUNDS + 1):
        below += times.counts[bucket]
        length += put(c_to + length, family.c_name, family.name_bytes)
        length += put(c_to + length, b"_bucket{", 8)
        length += put(c_to + length, c_labels, labels)
        c_to[length] = c','
        length += 1
        length += put(c_to + length, bounds[bucket], bound_bytes[bucket])
        length += put(c_to + length, b"} ", 2)
        length += put_number(c_to + length, <int64_t> below)
        c_to[length] = c'\n'
        length += 1
    length += put(c_to + length, family.c_name, family.name_bytes)
    length += put(c_to + length, b"_count{", 7)
    length += put(c_to + length, c_labels, labels)
    length += put(c_to + length, b"} ", 2)
    length += put_number(c_to + length, <int64_t> below)
    c_to[length] = c'\n'
    length += 1
    length += put(c_to + length, family.c_name, family.name_bytes)
    length += put(c_to + length, b"_sum{", 5)
    length += put(c_to + length, c_labels, labels)
    length += put(c_to + length, b"} ", 2)
    return length + snprintf(c_to + length, NUMBER_BYTES, "%.9f\n", times.sum_ns / 1e9)
