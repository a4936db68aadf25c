"""Growing memory that Arrow reads without a copy."""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdlib cimport free, realloc

cdef Py_ssize_t chunks_alive = 0


@cython.final
cdef class Chunk:
    """Bytes that compiled code appends to; read-only for Python."""

    def __cinit__(self):
        global chunks_alive
        chunks_alive += 1

    def __dealloc__(self):
        global chunks_alive
        chunks_alive -= 1
        free(self.c_data)

    cdef char *more(self, Py_ssize_t need) except NULL:
        cdef Py_ssize_t room = self.length + need
        cdef char *c_grown
        if self.lent:
            raise BufferError("a chunk cannot grow while it is lent")
        if room > self.room or self.c_data is NULL:
            room = max(room, 2 * self.room, 1024)
            c_grown = <char *> realloc(self.c_data, <size_t> room)
            if c_grown is NULL:
                raise MemoryError
            self.c_data = c_grown
            self.room = room
        self.length += need
        return self.c_data + self.length - need

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        if self.c_data is NULL:
            self.more(0)    # an empty buffer needs an address, too
        PyBuffer_FillInfo(buffer, self, self.c_data, self.length, 1, flags)
        self.lent += 1

    def __releasebuffer__(self, Py_buffer *buffer):
        self.lent -= 1

    def __len__(self):
        return self.length


def alive() -> int:
    """Number of existing chunks."""
    return chunks_alive
