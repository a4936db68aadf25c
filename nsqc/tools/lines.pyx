"""Messages as lines, MPUBs and pieces of files."""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.string cimport memchr, memcpy
from posix.mman cimport MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, PROT_READ, PROT_WRITE, mmap, munmap
from posix.unistd cimport _SC_PAGESIZE, sysconf

from nsqc.client.frames cimport Chunk
from nsqc.wire.hton cimport store_i32


# ====================================================================== lines
# Formats bodies of a batch as lines, in one piece of memory.

cdef extern from "<malloc.h>" nogil:
    enum:
        M_TRIM_THRESHOLD
        M_MMAP_THRESHOLD
    int mallopt(int parameter, int value)

cdef enum:
    MIB = 1 << 20


def keep_memory() -> None:
    """Makes freed memory stay with the process, up to 128 MiB. Batches come and go, and getting their pages from the
    system each time would take a third of a tool's processor time."""
    mallopt(M_MMAP_THRESHOLD, 32 * MIB)
    mallopt(M_TRIM_THRESHOLD, 128 * MIB)


def lines(Chunk bodies not None, Chunk offsets not None, Py_ssize_t start, Py_ssize_t stop, bytes prefix not None,
          bytes suffix not None) -> bytes:
    """prefix, body and suffix of the messages from start to stop, concatenated. bodies, offsets: of a Batch.
    Raises IndexError for rows outside of it."""
    cdef const int32_t *c_offsets = <const int32_t *> offsets.c_data
    cdef Py_ssize_t c_prefix = len(prefix), c_suffix = len(suffix), row, size
    cdef const char *c_before = prefix
    cdef const char *c_after = suffix
    cdef const char *c_from = bodies.c_data
    cdef char *c_to
    cdef bytes text
    if not 0 <= start <= stop < offsets.length // 4:
        raise IndexError(stop)
    text = PyBytes_FromStringAndSize(NULL, c_offsets[stop] - c_offsets[start] + (stop - start) * (c_prefix + c_suffix))
    c_to = PyBytes_AS_STRING(text)
    with nogil:     # another thread receives meanwhile
        for row in range(start, stop):
            size = c_offsets[row + 1] - c_offsets[row]
            memcpy(c_to, c_before, <size_t> c_prefix)
            memcpy(c_to + c_prefix, c_from + c_offsets[row], <size_t> size)
            memcpy(c_to + c_prefix + size, c_after, <size_t> c_suffix)
            c_to += c_prefix + size + c_suffix
    return text


# ====================================================================== cut
# Builds publishing commands from delimited text or from the bodies of a batch.

cdef enum:
    SIZE_BYTES = 4


def cut(bytes prefix not None, bytes head not None, const unsigned char[::1] block not None, Py_ssize_t start,
        Py_ssize_t stop, unsigned char delimiter, Py_ssize_t max_rows, int64_t max_bytes,
        int64_t max_message) -> tuple[bytes, int, int, bool]:
    """Complete lines of block[start:stop] as one command: (command, messages, where to continue, whether the next line
    is too large). A line ends with the byte delimiter; empty ones are skipped. The next line is too large if it has
    more than max_message bytes. prefix: the line of an MPUB, whose sizes are filled in; empty: each message gets head,
    the line of a DPUB, instead. Takes at most max_rows messages and max_bytes of bodies with their sizes, but at least
    one."""
    cdef Py_ssize_t c_prefix = len(prefix), c_head = len(head), at = start, rows = 0, length = 0
    cdef int64_t size, room
    cdef const char *c_line
    cdef const char *c_end
    cdef const char *c_stop
    cdef const char *c_before = head
    cdef char *c_to
    cdef char *c_begin
    cdef bint too_large = False
    cdef bytes command
    if not 0 <= start <= stop <= block.shape[0]:
        raise IndexError(stop)
    if start == stop:
        return b"", 0, start, False
    # Upper bound: the whole block with its lines as small as possible, and the limit plus one message.
    room = min(max_bytes + max_message, (stop - start) + ((stop - start) // 2 + 1) * (SIZE_BYTES + c_head))
    room = max(room, max_message + SIZE_BYTES + c_head)
    command = PyBytes_FromStringAndSize(NULL, c_prefix + 2 * SIZE_BYTES + <Py_ssize_t> room)
    c_begin = PyBytes_AS_STRING(command)
    c_to = c_begin
    if c_prefix:
        memcpy(c_to, <const char *> prefix, <size_t> c_prefix)
        c_to += c_prefix + 2 * SIZE_BYTES
    c_line = <const char *> &block[0] + start
    c_stop = <const char *> &block[0] + stop
    with nogil:
        while rows < max_rows and c_line < c_stop:
            c_end = <const char *> memchr(c_line, delimiter, <size_t> (c_stop - c_line))
            if c_end is NULL:
                # Incomplete, but already known to be too large.
                too_large = c_stop - c_line > max_message
                break
            size = c_end - c_line
            if size > max_message:
                too_large = True
                break
            if size:
                if rows and length + SIZE_BYTES + c_head + size > max_bytes:
                    break
                memcpy(c_to, c_before, <size_t> c_head)
                store_i32(c_to + c_head, <int32_t> size)
                memcpy(c_to + c_head + SIZE_BYTES, c_line, <size_t> size)
                c_to += c_head + SIZE_BYTES + size
                length += <Py_ssize_t> (c_head + SIZE_BYTES + size)
                rows += 1
            c_line = c_end + 1
    at = c_line - <const char *> &block[0]
    if not rows:
        return b"", 0, at, too_large
    if c_prefix:
        store_i32(c_begin + c_prefix, <int32_t> (length + SIZE_BYTES))
        store_i32(c_begin + c_prefix + SIZE_BYTES, <int32_t> rows)
    return command[:c_to - c_begin], rows, at, too_large


def repack(bytes prefix not None, Chunk bodies not None, Chunk offsets not None, Py_ssize_t start, Py_ssize_t max_rows,
           int64_t max_bytes) -> tuple[bytes, int]:
    """An MPUB of the messages of a Batch from start on, within the limits, but at least one: (command, index after the
    last). prefix: the line of the MPUB."""
    cdef const int32_t *c_offsets = <const int32_t *> offsets.c_data
    cdef Py_ssize_t count = offsets.length // 4 - 1, c_prefix = len(prefix), end = start, row, size
    cdef int64_t length = 0
    cdef char *c_to
    cdef bytes command
    if not 0 <= start < count:
        raise IndexError(start)
    while end < count and end - start < max(max_rows, 1):
        size = SIZE_BYTES + c_offsets[end + 1] - c_offsets[end]
        if end > start and length + size > max_bytes:
            break
        length += size
        end += 1
    command = PyBytes_FromStringAndSize(NULL, <Py_ssize_t> (c_prefix + 2 * SIZE_BYTES + length))
    c_to = PyBytes_AS_STRING(command)
    memcpy(c_to, <const char *> prefix, <size_t> c_prefix)
    c_to += c_prefix
    store_i32(c_to, <int32_t> (length + SIZE_BYTES))
    store_i32(c_to + SIZE_BYTES, <int32_t> (end - start))
    c_to += 2 * SIZE_BYTES
    for row in range(start, end):
        size = c_offsets[row + 1] - c_offsets[row]
        store_i32(c_to, <int32_t> size)
        memcpy(c_to + SIZE_BYTES, bodies.c_data + c_offsets[row], <size_t> size)
        c_to += SIZE_BYTES + size
    return command, end


# ====================================================================== piece
# Lines to be written to a file, in memory suitable for direct I/O.

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

    cdef char *c_data           # owned, page-aligned
    cdef Py_ssize_t room        # its size in bytes
    cdef Py_ssize_t begin       # start of the contents
    cdef Py_ssize_t end

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

    def __len__(self) -> int:
        return self.end - self.begin

    def clear(self, Py_ssize_t start):
        """Empties it; the next byte goes start bytes after the beginning of a page."""
        if not 0 <= start <= self.room:
            raise IndexError(start)
        self.begin = self.end = start

    def lines(self, Chunk bodies not None, Chunk offsets not None, Py_ssize_t start, Py_ssize_t stop) -> int:
        """Adds messages from start on, each with a newline, while they fit and before stop; returns the row after
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
