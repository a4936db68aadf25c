"""Arrow columns: bodies to publish, records of disk queues, ids seen recently."""

# types: from nsqc.spark.columns import RecordColumns
cimport cython
import os
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
from posix.fcntl cimport O_RDONLY
from posix.unistd cimport close

from nsqc.client.frames cimport Chunk
from nsqc.store.disk.fileio cimport io_open, io_size
from nsqc.store.disk.segment cimport (HEAD_BYTES, RECORD_ATTEMPTS_AT, RECORD_ID_AT, RECORD_TIMESTAMP_AT, Window,
                                      segment_next, window_free)
from nsqc.wire.const cimport MESSAGE_ID_BYTES
from nsqc.wire.hton cimport load_i64, load_u16, store_i32


# ====================================================================== bodies
# MPUB and DPUB straight from Arrow buffers: one copy per body, no Python object per row.
#
# Row r of a column is c_data[offsets[first + r] .. offsets[first + r + 1]]; it is null if the bit first + r of the
# validity bitmap, counted from the lowest, is 0. A slice has first > 0 and shares the buffers of the whole column.

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

    cdef const unsigned char[::1] validity, data    # validity is empty if no row is null
    cdef const int[::1] offsets                     # only one of the two is used
    cdef const long long[::1] wide_offsets
    cdef bint wide
    cdef Py_ssize_t first           # of the column in its buffers
    cdef readonly Py_ssize_t rows

    def __init__(self, validity: Any, offsets: Any, data: Any, Py_ssize_t first, Py_ssize_t rows, bint wide):
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

    def find_bad(self, Py_ssize_t start,
                 int64_t max_msg_size) -> tuple[int, Literal['null', 'empty', 'too big'], int] | None:
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

    def mpub(self, bytes topic not None, Py_ssize_t start, Py_ssize_t max_rows, int64_t max_bytes) -> tuple[bytes, int]:
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
             int64_t max_bytes, bytes id=b"") -> tuple[bytes, int]:
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


# ====================================================================== records
# Data files as columns: value, timestamp, attempts, id and position of each record, for Arrow. Records are found by the
# rules of nsqc.store.disk.segment.

cdef enum:
    FULL = 0x7F000000       # limit of body bytes per batch: their offsets have 32 bits


@cython.final
cdef class Records:
    """Reads path from an offset to a limit (bytes). max_msg_size bounds a body. Raises OSError."""

    cdef Window window          # freed with this object
    cdef int fd                 # owned; -1 when closed
    cdef int64_t at             # offset of the search for the next record
    cdef int64_t max_record     # bytes, head included
    cdef readonly int64_t damaged       # bytes so far that belong to no record
    cdef readonly int64_t damage_at     # offset of the first of them; -1: none
    cdef readonly str path

    def __cinit__(self):
        self.fd = -1
        self.damage_at = -1
        memset(&self.window, 0, sizeof(self.window))

    def __init__(self, str path not None, int64_t start, int64_t limit, int64_t max_msg_size):
        cdef bytes name = os.fsencode(path)
        cdef int64_t size
        self.path = path
        self.at = start
        self.max_record = HEAD_BYTES + max_msg_size
        self.fd = io_open(name, O_RDONLY)
        if self.fd < 0:
            raise OSError(-self.fd, os.strerror(-self.fd), path)
        size = io_size(self.fd)
        if size < 0:
            raise OSError(-size, os.strerror(-size), path)
        self.window.limit = min(size, limit)

    def __dealloc__(self):
        window_free(&self.window)
        if self.fd >= 0:
            close(self.fd)

    def batch(self, Py_ssize_t max_rows, Py_ssize_t max_bytes) -> RecordColumns | None:
        """The next records: (count, bodies, body offsets, timestamps, attempts, ids, positions), or None at the end.

        At least one record; otherwise at most max_rows, and max_bytes of bodies. Offsets are int32, one more than
        records; timestamps int64 in microseconds; attempts int32; ids 16 bytes each; positions int64 in the file.
        """
        cdef Chunk bodies = Chunk(), offsets = Chunk(), times = Chunk(), attempts = Chunk(), ids = Chunk()
        cdef Chunk positions = Chunk()
        cdef Py_ssize_t count = 0
        cdef int64_t found = 0, length = 0
        cdef int answer = 1
        cdef const char *c_record
        (<int32_t *> offsets.more(4))[0] = 0
        max_bytes = min(max_bytes, <Py_ssize_t> FULL)
        while count < max_rows and bodies.length < max_bytes:
            answer = segment_next(&self.window, self.fd, self.max_record, self.at, &found, &length)
            if answer <= 0:
                break
            if count and bodies.length + length > FULL:
                break
            self._count_damage(self.at, found)
            self.at = found + length
            c_record = self.window.c_data + (found - self.window.start)
            length -= HEAD_BYTES
            memcpy(bodies.more(<Py_ssize_t> length), c_record + HEAD_BYTES, <size_t> length)
            (<int32_t *> offsets.more(4))[0] = <int32_t> bodies.length
            (<int64_t *> times.more(8))[0] = load_i64(c_record + RECORD_TIMESTAMP_AT) // 1000
            (<int32_t *> attempts.more(4))[0] = load_u16(c_record + RECORD_ATTEMPTS_AT)
            memcpy(ids.more(MESSAGE_ID_BYTES), c_record + RECORD_ID_AT, MESSAGE_ID_BYTES)
            (<int64_t *> positions.more(8))[0] = found
            count += 1
        if answer < 0:
            raise OSError(-answer, os.strerror(-answer), self.path)
        if answer == 0:
            self._count_damage(self.at, self.window.limit)
            self.at = self.window.limit
        return (count, bodies, offsets, times, attempts, ids, positions) if count else None

    cdef int _count_damage(self, int64_t from_, int64_t to) except -1:
        """Counts the bytes between two records."""
        if to > from_:
            self.damaged += to - from_
            if self.damage_at < 0:
                self.damage_at = from_
        return 0


# ====================================================================== recent ids
# The latest message ids, each with the number of its nsqd, for recognising redeliveries. A new id replaces the oldest.

cdef enum:
    ID_BYTES = 16


cdef inline uint32_t spread(Key *key) noexcept:
    cdef uint64_t mixed = (key.high ^ (key.low * <uint64_t> 0x9E3779B97F4A7C15)) + key.node
    mixed = (mixed ^ (mixed >> 32)) * <uint64_t> 0xD6E8FEB86659FD93
    return <uint32_t> (mixed >> 32)


cdef inline void load(Key *key, const unsigned char *c_id, uint32_t node) noexcept:
    memcpy(&key.high, c_id, 8)
    memcpy(&key.low, c_id + 8, 8)
    key.node = node


cdef struct Key:
    uint64_t high, low      # the 16 bytes of the id
    uint32_t node           # number of the nsqd: ids are unique only within one nsqd


@cython.final
cdef class RecentIds:
    """Remembers the last capacity ids (1 to 2^26), each with the number of its nsqd. Uses about 32 bytes of memory per
    id."""

    cdef Key *c_ring            # owned: keys in order of arrival
    cdef uint32_t *c_table      # owned: index in the ring + 1 by hash, 0: free; linear probing
    cdef uint32_t capacity      # of the ring
    cdef uint32_t mask          # of the table: at least twice the capacity, minus 1
    cdef uint32_t next          # index of the next key
    cdef readonly uint32_t count

    def __cinit__(self, uint32_t capacity):
        cdef uint32_t size = 16
        if not 1 <= capacity <= 1 << 26:
            raise ValueError("capacity is 1 to 2^26")
        while size < 2 * capacity:
            size *= 2
        self.capacity = capacity
        self.mask = size - 1
        self.c_ring = <Key *> calloc(capacity, sizeof(Key))
        self.c_table = <uint32_t *> calloc(size, sizeof(uint32_t))
        if self.c_ring is NULL or self.c_table is NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.c_ring)
        free(self.c_table)

    cdef uint32_t find(self, Key *key) noexcept:
        """Its slot in the table, or the free slot for it."""
        cdef uint32_t place = spread(key) & self.mask
        cdef Key *known
        while self.c_table[place]:
            known = self.c_ring + self.c_table[place] - 1
            if known.high == key.high and known.low == key.low and known.node == key.node:
                break
            place = (place + 1) & self.mask
        return place

    cdef void forget(self, uint32_t place) noexcept:
        """Frees a slot of the table and moves up keys displaced by it."""
        cdef uint32_t hole = place, home
        while True:
            self.c_table[hole] = 0
            while True:
                place = (place + 1) & self.mask
                if not self.c_table[place]:
                    return
                home = spread(self.c_ring + self.c_table[place] - 1) & self.mask
                if ((place - home) & self.mask) >= ((place - hole) & self.mask):
                    break
            self.c_table[hole] = self.c_table[place]
            hole = place

    cdef bint add(self, Key *key) noexcept:
        """Adds a key; returns whether it is new."""
        cdef uint32_t place = self.find(key)
        if self.c_table[place]:
            return False
        if self.count == self.capacity:
            self.forget(self.find(self.c_ring + self.next))
            self.count -= 1
            place = self.find(key)
        self.c_ring[self.next] = key[0]
        self.c_table[place] = self.next + 1
        self.next = (self.next + 1) % self.capacity
        self.count += 1
        return True

    def remember(self, const unsigned char[::1] ids not None, uint32_t node) -> bytearray:
        """Adds ids (16 bytes each); a byte for each: 1 if it is new, 0 if it was known."""
        cdef Py_ssize_t at, count = ids.shape[0] // ID_BYTES
        cdef bytearray fresh = bytearray(count)
        cdef unsigned char[::1] flags = fresh
        cdef Key key
        if ids.shape[0] % ID_BYTES:
            raise ValueError("ids have 16 bytes")
        for at in range(count):
            load(&key, &ids[at * ID_BYTES], node)
            flags[at] = self.add(&key)
        return fresh

    def known(self, const unsigned char[::1] ids not None, uint32_t node) -> bytearray:
        """A byte for each of the ids: 1 if it is known."""
        cdef Py_ssize_t at, count = ids.shape[0] // ID_BYTES
        cdef bytearray is_known = bytearray(count)
        cdef unsigned char[::1] flags = is_known
        cdef Key key
        for at in range(count):
            load(&key, &ids[at * ID_BYTES], node)
            flags[at] = self.c_table[self.find(&key)] != 0
        return is_known

    def __len__(self) -> int:
        return self.count
