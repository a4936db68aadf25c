"""Records in memory as columns, for Arrow: one copy of each body, no Python object for a row. For Python: see the .pyi.

Lengths are walked first, so that each column is allocated once, with the size that it has.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy

from nsqc.client.chunk cimport Chunk
from nsqc.store.disk.segment cimport HEAD_BYTES, RECORD_ATTEMPTS_AT, RECORD_ID_AT, RECORD_TIMESTAMP_AT
from nsqc.wire.const cimport MESSAGE_ID_BYTES, SIZE_BYTES
from nsqc.wire.hton cimport load_i32, load_i64, load_u16

VALUE, TIMESTAMP, ATTEMPTS, ID, OFFSET = 1, 2, 4, 8, 16

cdef extern from "Python.h":
    const Py_ssize_t PY_SSIZE_T_MAX

cdef enum:
    WANT_VALUE = 1
    WANT_TIMESTAMP = 2
    WANT_ATTEMPTS = 4
    WANT_ID = 8
    WANT_OFFSET = 16
    FULL = 0x7F000000       # bytes of bodies in one batch: their offsets have 32 bits


@cython.final
cdef class Block:
    """See the .pyi."""

    def __init__(self, data not None, Py_ssize_t length, int64_t offset, int64_t count, int64_t most):
        cdef Py_ssize_t rows = 0, measured = 0
        self.data = data
        if not 0 <= length <= self.data.shape[0]:
            raise ValueError(f"{length} bytes of {self.data.shape[0]}")
        self.end = length
        self.offset = offset
        if length:
            self.measure(PY_SSIZE_T_MAX, PY_SSIZE_T_MAX, &rows, &measured)
        if rows != count:
            raise ValueError(f"{rows} records instead of {count}")
        if most < count:
            rows = measured = 0
            self.measure(<Py_ssize_t> most, PY_SSIZE_T_MAX, &rows, &measured)
            self.end = measured

    def batch(self, Py_ssize_t max_rows, Py_ssize_t max_bytes, int wanted):
        """See the .pyi."""
        cdef Py_ssize_t rows = 0, length = 0, row
        cdef int64_t record, body, filled_bytes = 0
        cdef const char *c_at
        cdef Chunk bodies, ends, times, attempts, ids, offsets
        cdef char *c_bodies = NULL
        cdef char *c_ids = NULL
        cdef int32_t *c_ends = NULL
        cdef int32_t *c_attempts = NULL
        cdef int64_t *c_times = NULL
        cdef int64_t *c_offsets = NULL
        if self.at == self.end:
            return None
        self.measure(max_rows, min(max_bytes, <Py_ssize_t> FULL), &rows, &length)
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
        self.offset += rows
        return rows, bodies, ends, times, attempts, ids, offsets

    cdef int measure(self, Py_ssize_t max_rows, Py_ssize_t max_bytes, Py_ssize_t *rows, Py_ssize_t *length) except -1:
        """How many of the next records fit, at least one, and their bytes."""
        cdef const unsigned char *c_data = &self.data[0]
        cdef Py_ssize_t at = self.at
        cdef int64_t record
        while at < self.end and rows[0] < max_rows:
            record = SIZE_BYTES + <int64_t> load_i32(<const char *> c_data + at) if self.end - at >= HEAD_BYTES else 0
            if record < HEAD_BYTES or record > self.end - at:
                raise ValueError(f"no record at byte {at} of {self.end}")
            if rows[0] and record > max_bytes - (at - self.at):
                break
            at += record
            rows[0] += 1
        length[0] = at - self.at
        return 0


cdef Chunk filled(Py_ssize_t length):
    """A chunk with so many bytes in use."""
    cdef Chunk chunk = Chunk()
    chunk.more(length)
    return chunk
