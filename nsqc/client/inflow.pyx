"""Frames from an nsqd to columns."""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport INT64_MAX, int32_t, int64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove

from nsqc.client.chunk cimport Chunk
from nsqc.wire.const cimport FRAME_HEAD_BYTES, FRAME_MESSAGE, MESSAGE_HEAD_BYTES, MESSAGE_ID_BYTES
from nsqc.wire.hton cimport load_i32, load_i64, load_u16

cdef enum:
    AREA_BYTES = 256 * 1024
    SIZE_BYTES = 4
    TYPE_BYTES = 4


class BadStream(ValueError):
    """Bytes that are not frames of nsqd."""


@cython.final
cdef class Inflow:
    """max_frame: the largest frame to accept, in bytes after its size field. tick_ns: the unit of timestamps in
    columns(), in nanoseconds."""

    def __cinit__(self, Py_ssize_t max_frame, int64_t tick_ns = 1):
        if tick_ns < 1:
            raise ValueError("a tick lasts at least a nanosecond")
        self.max_frame = max_frame
        self.tick_ns = tick_ns
        self.room = AREA_BYTES
        self.c_data = <char *> malloc(<size_t> self.room)
        if self.c_data is NULL:
            raise MemoryError
        self.replies = []
        self._fresh()

    def __dealloc__(self):
        free(self.c_data)

    cdef int _fresh(self) except -1:
        self.bodies, self.offsets, self.times = Chunk(), Chunk(), Chunk()
        self.attempts, self.ids = Chunk(), Chunk()
        (<int32_t *> self.offsets.more(4))[0] = 0
        self.rows = 0
        self.oldest = INT64_MAX
        return 0

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.c_data + self.end, self.room - self.end, 0, flags)
        self.lent += 1

    def __releasebuffer__(self, Py_buffer *buffer):
        self.lent -= 1

    def feed(self, const unsigned char[::1] data not None) -> None:
        """Takes bytes that were not received into the lent end. Raises BadStream."""
        cdef Py_ssize_t at = 0, count
        while at < data.shape[0]:
            count = min(self.room - self.end, data.shape[0] - at)
            memcpy(self.c_data + self.end, &data[at], <size_t> count)
            at += count
            self.fed(count)

    def fed(self, Py_ssize_t count) -> None:
        """Takes the first count bytes of the lent end. Raises BadStream."""
        cdef Py_ssize_t size
        cdef int kind
        if not 0 <= count <= self.room - self.end or self.lent:
            raise BufferError("more than was lent, or still lent")
        self.end += count
        while self.end - self.begin >= SIZE_BYTES:
            size = load_i32(self.c_data + self.begin)
            # Before any object is created for it: _make_room() relies on that.
            if size < TYPE_BYTES or size > self.max_frame:
                raise BadStream(f"a frame of {size} bytes, {self.max_frame} are allowed")
            if self.end - self.begin < SIZE_BYTES + size:
                break
            kind = load_i32(self.c_data + self.begin + SIZE_BYTES)
            if kind == FRAME_MESSAGE:
                self._message(self.c_data + self.begin + FRAME_HEAD_BYTES, size - TYPE_BYTES)
            else:
                self.replies.append((kind, self.c_data[self.begin + FRAME_HEAD_BYTES:self.begin + SIZE_BYTES + size]))
            self.begin += SIZE_BYTES + size
        self._make_room()

    cdef int _make_room(self) except -1:
        """Moves an incomplete frame to the front; grows the area if the frame does not fit."""
        cdef Py_ssize_t rest = self.end - self.begin, need = AREA_BYTES
        cdef char *c_grown
        if rest >= SIZE_BYTES:
            need = max(need, SIZE_BYTES + <Py_ssize_t> load_i32(self.c_data + self.begin))
        if self.begin:
            memmove(self.c_data, self.c_data + self.begin, <size_t> rest)
            self.begin, self.end = 0, rest
        if need > self.room or (self.room > 4 * AREA_BYTES and need == AREA_BYTES):
            c_grown = <char *> realloc(self.c_data, <size_t> need)
            if c_grown is NULL:
                raise MemoryError
            self.c_data = c_grown
            self.room = need
        return 0

    cdef int _message(self, const char *c_at, Py_ssize_t length) except -1:
        cdef Py_ssize_t size = length - MESSAGE_HEAD_BYTES
        cdef int64_t time
        if size < 0:
            raise BadStream(f"a message of {length} bytes")
        if self.bodies.length + size > 0x7F000000:
            raise BufferError("too many bytes of messages collected")
        time = load_i64(c_at)
        self.oldest = min(self.oldest, time)
        (<int64_t *> self.times.more(8))[0] = time // self.tick_ns
        (<int32_t *> self.attempts.more(4))[0] = load_u16(c_at + 8)
        memcpy(self.ids.more(MESSAGE_ID_BYTES), c_at + 10, MESSAGE_ID_BYTES)
        memcpy(self.bodies.more(size), c_at + MESSAGE_HEAD_BYTES, <size_t> size)
        (<int32_t *> self.offsets.more(4))[0] = <int32_t> self.bodies.length
        self.rows += 1
        return 0

    @property
    def bytes(self) -> int:
        """Size of the collected bodies."""
        return self.bodies.length

    def columns(self) -> tuple:
        """Takes the collected messages: (count, bodies, body offsets, timestamps, attempts, ids); offsets int32, one
        more than messages; timestamps int64 in ticks; attempts int32; ids 16 bytes each."""
        columns = (self.rows, self.bodies, self.offsets, self.times, self.attempts, self.ids)
        self._fresh()
        return columns
