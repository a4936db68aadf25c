"""Lines to be written to a file, in memory suitable for direct I/O."""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int32_t, uint32_t
from libc.string cimport memcpy
from posix.mman cimport MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, PROT_READ, PROT_WRITE, mmap, munmap
from posix.unistd cimport _SC_PAGESIZE, sysconf

from nsqc.client.chunk cimport Chunk

cdef extern from "<fcntl.h>" nogil:
    enum:
        AT_EMPTY_PATH

cdef extern from "<sys/stat.h>" nogil:
    ctypedef struct StatX "struct statx":
        pass
    int statx(int folder, const char *path, int flags, unsigned int mask, StatX *found)

cdef enum:
    # Of struct statx, laid out as in the kernel; the build's headers may be older.
    STATX_WORDS = 64
    MASK_WORD = 0
    MEMORY_ALIGN_WORD = 38
    OFFSET_ALIGN_WORD = 39
    STATX_DIOALIGN = 0x2000


def direct_block(int descriptor) -> int:
    """Alignment of positions and sizes for direct writes (O_DIRECT): whole pages, so that no page is written in both
    ways at once; 0 if the file system has no direct writes. If the kernel does not report it, the page size, and a
    write may still fail with EINVAL."""
    cdef uint32_t words[STATX_WORDS]
    cdef uint32_t page = <uint32_t> sysconf(_SC_PAGESIZE), block
    if statx(descriptor, b"", AT_EMPTY_PATH, STATX_DIOALIGN, <StatX *> words) != 0 \
            or not words[MASK_WORD] & STATX_DIOALIGN:
        return page
    block = words[OFFSET_ALIGN_WORD]
    if block == 0 or words[MEMORY_ALIGN_WORD] > page:
        return 0
    return max(block, page)


@cython.final
cdef class Piece:
    """room: bytes; memory is allocated when first filled. The buffer protocol exports the contents, and a buffer
    reflects later changes: the memory does not move."""

    def __cinit__(self, Py_ssize_t room):
        cdef void *c_mapped
        if room <= 0:
            raise ValueError(room)
        c_mapped = mmap(NULL, <size_t> room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        if c_mapped == MAP_FAILED:
            raise MemoryError
        self.c_data = <char *> c_mapped
        self.room = room

    def __dealloc__(self):
        if self.c_data is not NULL:
            munmap(self.c_data, <size_t> self.room)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.c_data + self.begin, self.end - self.begin, 1, flags)

    def __len__(self):
        return self.end - self.begin

    def clear(self, Py_ssize_t start) -> None:
        """Empties it; the next byte goes start bytes after the beginning of a page."""
        if not 0 <= start <= self.room:
            raise IndexError(start)
        self.begin = self.end = start

    def lines(self, Chunk bodies not None, Chunk offsets not None, Py_ssize_t start, Py_ssize_t stop) -> int:
        """Adds messages from start on, each with a newline, as many as fit and none from stop on; returns the row after
        the last. bodies, offsets: of a Batch. Raises IndexError for rows outside of it."""
        cdef const int32_t *c_offsets = <const int32_t *> offsets.c_data
        cdef const char *c_from = bodies.c_data
        cdef char *c_to = self.c_data + self.end
        cdef char *c_limit = self.c_data + self.room
        cdef Py_ssize_t row = start, size
        if not 0 <= start <= stop < offsets.length // 4:
            raise IndexError(stop)
        with nogil:     # another thread receives meanwhile
            while row < stop:
                size = c_offsets[row + 1] - c_offsets[row]
                if size >= c_limit - c_to:
                    break
                memcpy(c_to, c_from + c_offsets[row], <size_t> size)
                c_to[size] = c'\n'
                c_to += size + 1
                row += 1
        self.end = c_to - self.c_data
        return row

    def put(self, const unsigned char[::1] data not None) -> int:
        """Adds as many bytes as fit; returns their number."""
        cdef Py_ssize_t count = min(data.shape[0], self.room - self.end)
        if count:
            memcpy(self.c_data + self.end, &data[0], <size_t> count)
            self.end += count
        return count
