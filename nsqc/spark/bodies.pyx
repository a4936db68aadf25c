"""MPUB and DPUB straight from Arrow buffers: one copy per body, no Python object per row."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy

from nsqc.wire.hton cimport store_i32

cdef enum:
    COUNT_BYTES = 4     # of an MPUB's body
    SIZE_BYTES = 4      # before each message, and before the body
    LINE_BYTES = 152    # "DPUB ", a name of 64, a delay, an id of 48, a number, a line feed

NULL_BODY, EMPTY_BODY, BIG_BODY = "null", "empty", "too big"


@cython.final
cdef class Bodies:
    """A column given by its buffers as returned by pyarrow's Array.buffers(): validity or None, offsets, data or None.

    first and rows: offset and length of the array in elements; wide: offsets have 64 bits. Raises ValueError for
    inconsistent buffers.
    """

    def __init__(self, validity, offsets, data, Py_ssize_t first, Py_ssize_t rows, bint wide):
        cdef int64_t end, known
        cdef Py_ssize_t row
        self.first = first
        self.rows = rows
        self.wide = wide
        self.validity = memoryview(validity).cast("B") if validity is not None else b""
        self.data = memoryview(data).cast("B") if data is not None else b""
        if first < 0 or rows < 0:
            raise ValueError("first and rows must not be negative")
        if not rows:
            return
        view = memoryview(offsets).cast("B")
        view = view[:len(view) // (8 if wide else 4) * (8 if wide else 4)]
        if wide:
            self.wide_offsets = view.cast("q")
            known = self.wide_offsets.shape[0]
        else:
            self.offsets = view.cast("i")
            known = self.offsets.shape[0]
        if known <= first + rows:
            raise ValueError(f"{known} offsets are too few for {first} + {rows} rows")
        if self.validity.shape[0] and self.validity.shape[0] * 8 < first + rows:
            raise ValueError("the validity bitmap is too short")
        end = self.begin(0)
        for row in range(rows):
            if self.size(row) < 0:
                raise ValueError(f"the offsets decrease at row {row}")
            end = self.begin(row + 1)
        if self.begin(0) < 0 or end > self.data.shape[0]:
            raise ValueError(f"the offsets exceed the {self.data.shape[0]} bytes of data")

    cdef inline int64_t begin(self, Py_ssize_t row) noexcept:
        return self.wide_offsets[self.first + row] if self.wide else self.offsets[self.first + row]

    cdef inline int64_t size(self, Py_ssize_t row) noexcept:
        return self.begin(row + 1) - self.begin(row)

    cdef inline bint is_null(self, Py_ssize_t row) noexcept:
        cdef Py_ssize_t bit = self.first + row
        return self.validity.shape[0] and not (self.validity[bit >> 3] >> (bit & 7)) & 1

    cdef inline char *put(self, char *c_to, Py_ssize_t row) noexcept:
        """Writes size and body; returns the end position."""
        cdef int64_t size = self.size(row)
        store_i32(c_to, <int32_t> size)
        if size:
            memcpy(c_to + SIZE_BYTES, &self.data[self.begin(row)], <size_t> size)
        return c_to + SIZE_BYTES + size

    def find_bad(self, Py_ssize_t start, int64_t max_msg_size):
        """The first row from start on that nsqd would refuse: (row, "null" | "empty" | "too big", bytes), or None."""
        cdef Py_ssize_t row
        cdef int64_t size
        for row in range(start, self.rows):
            size = self.size(row)
            if 0 < size <= max_msg_size and not self.is_null(row):
                continue
            if self.is_null(row):
                return row, NULL_BODY, 0
            return row, BIG_BODY if size else EMPTY_BODY, size
        return None

    def mpub(self, bytes topic not None, Py_ssize_t start, Py_ssize_t max_rows, int64_t max_bytes):
        """One MPUB from row start on: (command, row after the last). At least one row, otherwise within both limits;
        max_bytes counts the body of the command. The rows must be good (find_bad)."""
        cdef Py_ssize_t end = start, row
        cdef int64_t body = COUNT_BYTES, size
        cdef bytes line = b"MPUB " + topic + b"\n", command
        cdef char *c_to
        if not 0 <= start < self.rows:
            raise IndexError(start)
        while end < self.rows and end - start < max(max_rows, 1):
            size = SIZE_BYTES + self.size(end)
            if end > start and body + size > max_bytes:
                break
            body += size
            end += 1
        command = PyBytes_FromStringAndSize(NULL, <Py_ssize_t> (len(line) + SIZE_BYTES + body))
        c_to = PyBytes_AS_STRING(command)
        memcpy(c_to, <const char *> line, <size_t> len(line))
        c_to += len(line)
        store_i32(c_to, <int32_t> body)
        store_i32(c_to + SIZE_BYTES, <int32_t> (end - start))
        c_to += SIZE_BYTES + COUNT_BYTES
        for row in range(start, end):
            c_to = self.put(c_to, row)
        return command, end

    def dpub(self, bytes topic not None, const int[::1] delays not None, Py_ssize_t start, Py_ssize_t max_rows,
             int64_t max_bytes, bytes id=b""):
        """A DPUB for each row from start on, joined: (commands, row after the last). delays: milliseconds, by row. id:
        of all; each is followed by a number."""
        cdef Py_ssize_t end = start, row
        cdef int64_t room = 0, size
        cdef bytes commands
        cdef const char *c_topic = topic
        cdef const char *c_id = id
        cdef bint has_id = len(id) > 0
        cdef char *c_from
        cdef char *c_to
        if not 0 <= start < self.rows or delays.shape[0] != self.rows or len(topic) > 64 or len(id) > 48:
            raise IndexError(start)
        while end < self.rows and end - start < max(max_rows, 1):
            size = LINE_BYTES + SIZE_BYTES + self.size(end)
            if end > start and room + size > max_bytes:
                break
            room += size
            end += 1
        commands = PyBytes_FromStringAndSize(NULL, <Py_ssize_t> room)
        c_from = c_to = PyBytes_AS_STRING(commands)
        for row in range(start, end):
            if has_id:
                c_to += snprintf(c_to, LINE_BYTES, "DPUB %s %d %s.%d\n", c_topic, delays[row], c_id,
                                 <int> (row - start))
            else:
                c_to += snprintf(c_to, LINE_BYTES, "DPUB %s %d\n", c_topic, delays[row])
            c_to = self.put(c_to, row)
        return commands[:c_to - c_from], end
