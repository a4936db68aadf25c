"""Multi-publishes. See the .pxd."""

cimport cython
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memset

from nsqc.store.backlog cimport PUT_MEMORY
from nsqc.store.fifo cimport fifo_free
from nsqc.store.log.buffer cimport buffer_free
from nsqc.store.slices cimport Trash


@cython.final
cdef class OpenBatch:
    """The messages of a multi-publish."""

    def __dealloc__(self):
        fifo_free(&self.gathered)
        buffer_free(&self.staged)

    @staticmethod
    def sized(bytes body not None, int64_t end, uint32_t defer_ms=0):
        """The messages in the binary body of a multi-publish.

        end: end of the messages, from nsqc.wire.mpub.check(); defer_ms: the delay of each message.
        """
        cdef OpenBatch self = OpenBatch.__new__(OpenBatch)
        self.begin(None, defer_ms)
        self.body = body
        self.take_sized(body, SIZE_BYTES, end, load_i32(body))
        return self

    @staticmethod
    def lines(bytes body not None, uint32_t defer_ms=0):
        """The non-empty lines of a text."""
        cdef OpenBatch self = OpenBatch.__new__(OpenBatch)
        self.begin(None, defer_ms)
        self.body = body
        self.source = LINES
        self.c_data = body
        self.end = len(body)
        self.at = next_line(self.c_data, 0, self.end)
        return self

    cdef void begin(self, StoreOwner topic, uint32_t defer_ms) noexcept:
        self.topic = topic
        self.defer_ms = defer_ms
        self.result = PUT_MEMORY
        self.open = self.admitted = False
        memset(&self.once, 0, sizeof(Once))

    cdef void take_sized(self, const char *c_data, int64_t at, int64_t end, int64_t count) noexcept:
        self.source = SIZED
        self.c_data = c_data
        self.at = at
        self.end = end
        self.count = count

    cdef void take_gathered(self) noexcept:
        self.source = GATHERED
        self.at = 0
        self.end = self.gathered.count

    cdef void measure(self, int64_t *count, int64_t *body_bytes) noexcept:
        cdef int64_t at = self.at, length
        count[0] = self.count
        body_bytes[0] = self.end - self.at - self.count * SIZE_BYTES
        if self.source == GATHERED:
            count[0] = self.gathered.count
            body_bytes[0] = self.gathered.bytes
        elif self.source == LINES:
            count[0] = body_bytes[0] = 0
            while at < self.end:
                length = line_bytes(self.c_data + at, self.end - at)
                count[0] += 1
                body_bytes[0] += length
                at = next_line(self.c_data, at + length, self.end)

    cdef bint refuse(self, int result) noexcept:
        self.result = result
        self.open = self.admitted = False
        return True

    cdef bint end_with(self, int result, Slicer slicer) noexcept:
        cdef Trash trash
        self.result = result
        self.at = self.end
        self.open = False
        if self.staged.c_data is not NULL:
            buffer_free(&self.staged)
        if self.gathered.count:
            trash = Trash.new(slicer)
            trash.take_fifo(&self.gathered)
            trash.start()
        return True
