"""Data files as columns: value, timestamp, attempts, id and position of each record, for Arrow."""

import os

cimport cython
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset
from posix.fcntl cimport O_RDONLY
from posix.unistd cimport close

from nsqc.client.chunk cimport Chunk
from nsqc.store.disk.syscalls cimport io_open, io_size
from nsqc.store.disk.segment cimport (HEAD_BYTES, RECORD_ATTEMPTS_AT, RECORD_ID_AT, RECORD_TIMESTAMP_AT, segment_next,
                                      window_free)
from nsqc.wire.const cimport MESSAGE_ID_BYTES
from nsqc.wire.hton cimport load_i64, load_u16

cdef enum:
    FULL = 0x7F000000       # limit of body bytes per batch: their offsets have 32 bits


@cython.final
cdef class Records:
    """Reads path from an offset to a limit (bytes). max_msg_size bounds a body. Raises OSError."""

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

    def batch(self, Py_ssize_t max_rows, Py_ssize_t max_bytes):
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
