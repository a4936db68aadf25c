"""Records in memory as columns, for Arrow: one copy of each body, no Python object for a row. For Python: see the .pyi.

Records are walked first, so each column is allocated once, with the size that it has.
"""

cimport cython
from libc.stdint cimport UINT32_MAX, int32_t, int64_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from nsqc.client.chunk cimport Chunk
from nsqc.store.disk.segment cimport HEAD_BYTES, RECORD_ATTEMPTS_AT, RECORD_ID_AT, RECORD_TIMESTAMP_AT
from nsqc.wire.const cimport MESSAGE_ID_BYTES, SIZE_BYTES
from nsqc.wire.hton cimport load_i32, load_i64, load_u16

VALUE, TIMESTAMP, ATTEMPTS, ID, OFFSET = 1, 2, 4, 8, 16

cdef extern from *:
    void prefetch "__builtin_prefetch"(const void *address) noexcept nogil

cdef enum:
    WANT_VALUE = 1
    WANT_TIMESTAMP = 2
    WANT_ATTEMPTS = 4
    WANT_ID = 8
    WANT_OFFSET = 16
    FULL = 0x7F000000       # bytes of bodies in one batch: their offsets have 32 bits
    AHEAD_BYTES = 2048
    LINE_BYTES = 64


@cython.final
cdef class Block:
    """See the .pyi."""

    def __dealloc__(self):
        free(self.ends)

    def __init__(self, data not None, Py_ssize_t length, int64_t offset, int64_t count, int64_t most):
        if self.ends is not NULL:
            raise ValueError("this block has its records")
        self.data = data
        if not 0 <= length <= min(self.data.shape[0], <Py_ssize_t> UINT32_MAX):
            raise ValueError(f"{length} bytes of {self.data.shape[0]}")
        if not 0 <= count <= length // HEAD_BYTES:
            raise ValueError(f"{count} records in {length} bytes")
        self.offset = offset
        self.rows = count
        self.ends = <uint32_t *> malloc(<size_t> max(count, <int64_t> 1) * sizeof(uint32_t))
        if self.ends is NULL:
            raise MemoryError
        self._walk(length)
        self.rows = min(count, max(most, <int64_t> 0))
        self.end = <Py_ssize_t> self.ends[self.rows - 1] if self.rows else 0

    def batch(self, Py_ssize_t max_rows, Py_ssize_t max_bytes, int wanted):
        """See the .pyi."""
        cdef Py_ssize_t rows, length, row
        cdef int64_t record, body, filled_bytes = 0
        cdef const char *c_at
        cdef Chunk bodies, ends, times, attempts, ids, offsets
        cdef char *c_bodies = NULL
        cdef char *c_ids = NULL
        cdef int32_t *c_ends = NULL
        cdef int32_t *c_attempts = NULL
        cdef int64_t *c_times = NULL
        cdef int64_t *c_offsets = NULL
        if self.row == self.rows:
            return None
        rows = <Py_ssize_t> self._fitting(max_rows, min(max_bytes, <Py_ssize_t> FULL))
        length = <Py_ssize_t> self.ends[self.row + rows - 1] - self.at
        bodies = filled(length - rows * HEAD_BYTES if wanted & WANT_VALUE else 0)
        ends = filled(4 * (rows + 1) if wanted & WANT_VALUE else 0)
        times = filled(8 * rows if wanted & WANT_TIMESTAMP else 0)
        attempts = filled(4 * rows if wanted & WANT_ATTEMPTS else 0)
        ids = filled(MESSAGE_ID_BYTES * rows if wanted & WANT_ID else 0)
        offsets = filled(8 * rows if wanted & WANT_OFFSET else 0)
        if wanted & WANT_VALUE:
            c_bodies, c_ends = bodies.c_data, <int32_t *> ends.c_data
            c_ends[0] = 0
        if wanted & WANT_TIMESTAMP:
            c_times = <int64_t *> times.c_data
        if wanted & WANT_ATTEMPTS:
            c_attempts = <int32_t *> attempts.c_data
        if wanted & WANT_ID:
            c_ids = ids.c_data
        if wanted & WANT_OFFSET:
            c_offsets = <int64_t *> offsets.c_data
        c_at = <const char *> &self.data[self.at]
        with nogil:
            for row in range(rows):
                record = SIZE_BYTES + <int64_t> load_i32(c_at)
                if c_bodies is not NULL:
                    body = record - HEAD_BYTES
                    memcpy(c_bodies + filled_bytes, c_at + HEAD_BYTES, <size_t> body)
                    filled_bytes += body
                    c_ends[row + 1] = <int32_t> filled_bytes
                if c_times is not NULL:
                    c_times[row] = load_i64(c_at + RECORD_TIMESTAMP_AT) // 1000
                if c_attempts is not NULL:
                    c_attempts[row] = load_u16(c_at + RECORD_ATTEMPTS_AT)
                if c_ids is not NULL:
                    memcpy(c_ids + MESSAGE_ID_BYTES * row, c_at + RECORD_ID_AT, MESSAGE_ID_BYTES)
                if c_offsets is not NULL:
                    c_offsets[row] = self.offset + row
                c_at += record
        self.at += length
        self.row += rows
        self.offset += rows
        return rows, bodies, ends, times, attempts, ids, offsets

    cdef int _walk(self, Py_ssize_t length) except -1:
        """Finds where records end. Each length says where the next one lies: without fetching what comes, a walk waits
        for memory at each record, and takes longer than copying them."""
        cdef const char *c_data = <const char *> &self.data[0] if length else NULL
        cdef Py_ssize_t at = 0, fetched = 0
        cdef int64_t record, row
        for row in range(self.rows):
            while fetched < at + AHEAD_BYTES and fetched < length:
                prefetch(c_data + fetched)
                fetched += LINE_BYTES
            record = SIZE_BYTES + <int64_t> load_i32(c_data + at) if length - at >= HEAD_BYTES else 0
            if record < HEAD_BYTES or record > length - at:
                raise ValueError(f"no record at byte {at} of {length}")
            at += record
            self.ends[row] = <uint32_t> at
        if at != length:
            raise ValueError(f"more than {self.rows} records")
        return 0

    cdef int64_t _fitting(self, int64_t max_rows, int64_t max_bytes) noexcept:
        """How many of the next records are a batch: at least one."""
        cdef int64_t low = 1, high = max(min(max_rows, self.rows - self.row), <int64_t> 1), middle
        while low < high:
            middle = (low + high + 1) // 2
            if <int64_t> self.ends[self.row + middle - 1] - self.at <= max_bytes:
                low = middle
            else:
                high = middle - 1
        return low


cdef Chunk filled(Py_ssize_t length):
    """A chunk with so many bytes in use."""
    cdef Chunk chunk = Chunk()
    chunk.more(length)
    return chunk
