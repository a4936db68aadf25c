"""Formats many rows as text: the per-row work is C and needs no GIL."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MIN, int64_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy
from posix.mman cimport MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, PROT_READ, PROT_WRITE, mmap, munmap

from nsqc.metrics.times cimport BOUNDS, FIRST_BITS, STEP_BITS, SUM_BITS, Times, TwoTimes, times_settle

cdef extern from "<sys/mman.h>" nogil:
    int MAP_POPULATE

ABSENT = INT64_MIN

cdef enum:
    BLOCK_BYTES = 524288
    NUMBER_BYTES = 32           # the longest number
    BOUND_BYTES = 24            # le="…" of a bucket, at most
    SAMPLE_BYTES = 64           # of a sample besides its name and labels: suffix, le, braces, number, line end
    PIECE_HEAD = 8              # of a chunk: six hexadecimal digits and a line end
    PIECE_TAIL = 2
    MOST_PIECE = 16777215       # the largest size that these digits can express

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
BOUNDS_S: tuple[float, ...] = tuple((1 << (FIRST_BITS + STEP_BITS * bucket)) / 1e9 for bucket in range(BOUNDS))


# ---------------------------------------------------------------------- rows

@cython.final
cdef class Table:
    """Rows that are collected once and then only read."""

    def __dealloc__(self):
        free_blocks(self)

    cdef Row *add(self, bytes topic, bytes channel) except NULL:
        cdef int64_t most = 32 + 2 * (len(topic) + (len(channel) if channel is not None else 0))
        cdef Row *row = <Row *> place(self, sizeof(Row))
        cdef char *c_labels = <char *> place(self, most)
        row.label_bytes = put_label(c_labels, b"topic", topic)
        if channel is not None:
            c_labels[row.label_bytes] = c','
            row.label_bytes += 1
            row.label_bytes += put_label(c_labels + row.label_bytes, b"channel", channel)
        row.c_labels = c_labels
        if self.last is NULL:
            self.first = row
        else:
            self.last.next = row
        self.last = row
        self.count += 1
        return row

    cdef int add_times(self, Row *row, TwoTimes *times) except -1:
        if row.histograms is NULL:
            row.histograms = <TwoHistograms *> place(self, sizeof(TwoHistograms))
        add_up(&row.histograms.of[0], &times.of[0])
        add_up(&row.histograms.of[1], &times.of[1])
        add_up(&self.total.of[0], &times.of[0])
        add_up(&self.total.of[1], &times.of[1])
        return 0

    def total_times(self, int column) -> tuple[list[int], int]:
        """Of all rows: the counts by bucket, and the sum in nanoseconds. column: which of the two durations."""
        cdef Histogram *histogram
        if not 0 <= column < 2:
            raise ValueError("no such column")
        histogram = &self.total.of[column]
        return [histogram.counts[place] for place in range(BOUNDS + 1)], histogram.sum << SUM_BITS


cdef inline void add_up(Histogram *histogram, Times *times) noexcept nogil:
    cdef int place
    times_settle(times)
    for place in range(BOUNDS):
        histogram.counts[place] += times.counts[place]
    for place in range(BOUNDS, 26):
        histogram.counts[<int> BOUNDS] += times.counts[place]
    histogram.sum += times.sum


cdef void *place(Table table, int64_t size) except NULL:
    """Allocates zeroed bytes in a block. Growing copies nothing, and a block's pages are mapped at once."""
    cdef Block *block = table.blocks
    cdef void *c_place
    size = (size + 7) & ~<int64_t> 7
    if block is NULL or block.used + size > BLOCK_BYTES:
        if size > BLOCK_BYTES - <int64_t> sizeof(Block):
            raise MemoryError
        block = <Block *> mmap(NULL, BLOCK_BYTES, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | (0 if table.blocks is NULL else MAP_POPULATE), -1, 0)
        if <void *> block == MAP_FAILED:
            raise MemoryError
        block.next = table.blocks
        block.used = sizeof(Block)
        table.blocks = block
    c_place = <char *> block + block.used
    block.used += size
    return c_place


cdef void free_blocks(Table table) noexcept nogil:
    cdef Block *block = table.blocks
    cdef Block *next
    table.blocks = NULL
    table.first = table.last = NULL
    while block is not NULL:
        next = block.next
        munmap(block, BLOCK_BYTES)
        block = next


cdef int64_t put_label(char *c_to, bytes name, bytes value) noexcept:
    """Writes name="value"; returns its length: at most 4 more than the name and twice the value."""
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

cdef struct Family:
    const Row *rows             # of its table; borrowed, like all pointers here
    int column                  # of cells; or which of TwoHistograms
    bint is_times
    const char *c_head          # HELP, TYPE and UNIT lines
    int64_t head_bytes
    const char *c_name          # of the samples
    int64_t name_bytes


@cython.final
cdef class Text:
    """The samples of several families, one family after another."""

    cdef list kept              # references to objects that the families borrow from, like the following
    cdef tuple tables           # complete
    cdef Family *families       # owned
    cdef int count
    cdef int at                 # index of the next family
    cdef const Row *row         # the next row of its table
    cdef bint headed            # the head is already written

    def __init__(self, Table first not None, Table second not None,
                 families: list[tuple[int, int, bool, bytes, bytes]]):
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
            family.rows = rows.first
            family.column = column
            family.is_times = is_times
            family.c_head = PyBytes_AS_STRING(head)
            family.head_bytes = PyBytes_GET_SIZE(head)
            family.c_name = PyBytes_AS_STRING(name)
            family.name_bytes = PyBytes_GET_SIZE(name)
            self.count += 1

    def __dealloc__(self):
        free(self.families)

    def piece(self, Py_ssize_t size, bint chunked) -> bytes:
        """The next part of the text, slightly more than this many bytes at most; b"": the end.

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
        """Frees the tables' memory: for large tables this takes milliseconds, so call it off the loop."""
        cdef Table first = <Table> self.tables[0], second = <Table> self.tables[1]
        first.count = second.count = 0
        with nogil:
            free_blocks(first)
            free_blocks(second)

    cdef int64_t _fill(self, char *c_to, int64_t room) noexcept nogil:
        """Returns the number of bytes written; -1: a single row needs more space."""
        cdef Family *family
        cdef int64_t length = 0, need
        while self.at < self.count:
            family = &self.families[self.at]
            if not self.headed:
                if family.head_bytes > room - length:
                    return length if length else -1
                length += put(c_to + length, family.c_head, family.head_bytes)
                self.headed = True
                self.row = family.rows
            while self.row is not NULL:
                need = family.name_bytes + self.row.label_bytes + SAMPLE_BYTES
                if family.is_times:
                    need *= BOUNDS + 3
                if need > room - length:
                    return length if length else -1
                if family.is_times:
                    if self.row.histograms is not NULL:
                        length += put_times(c_to + length, family, self.row.c_labels, self.row.label_bytes,
                                            &self.row.histograms.of[family.column])
                elif self.row.cells[family.column] != ABSENT:
                    length += put_sample(c_to + length, family, self.row.c_labels, self.row.label_bytes,
                                         self.row.cells[family.column])
                self.row = self.row.next
            self.at += 1
            self.headed = False
        return length


cdef inline int64_t put(char *c_to, const char *c_from, int64_t length) noexcept nogil:
    memcpy(c_to, c_from, <size_t> length)
    return length


cdef inline int64_t put_number(char *c_to, int64_t value) noexcept nogil:
    """Writes a decimal number; returns its length."""
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
                       const Histogram *histogram) noexcept nogil:
    """Writes the cumulative buckets, the count and the sum in seconds."""
    cdef int64_t length = 0
    cdef uint64_t below = 0
    cdef int bucket
    for bucket in range(BOUNDS + 1):
        below += histogram.counts[bucket]
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
    return length + snprintf(c_to + length, NUMBER_BYTES, "%.9f\n", <double> histogram.sum * (1 << SUM_BITS) / 1e9)
