"""The allocator behind messages. See the .pxd."""

from libc.stdint cimport int64_t, uint32_t, uintptr_t
from libc.stdlib cimport free, malloc
from posix.mman cimport MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, PROT_READ, PROT_WRITE, mmap, munmap

cdef extern from "<sys/mman.h>" nogil:
    int madvise(void *addr, size_t length, int advice)
    int MADV_HUGEPAGE

cdef enum:
    CHUNK_BYTES = 2097152
    CHUNK_HEAD = 64
    FINE_STEP = 16          # classes up to FINE_LIMIT
    FINE_LIMIT = 1024
    COARSE_STEP = 128       # classes up to LARGEST
    LARGEST = 4096          # what is larger comes from malloc
    FINE_CLASSES = 64
    CLASSES = 88
    MAX_SPARE = 4           # empty chunks kept for the next use

cdef Chunk *partial[CLASSES]        # chunks with free pieces, the one to take from first
cdef uint32_t chunks_of[CLASSES]
cdef Chunk *c_spare = NULL
cdef int spares = 0
cdef int64_t chunks = 0


cdef inline uint32_t class_of(size_t size) noexcept nogil:
    if size <= FINE_LIMIT:
        return <uint32_t> ((size - 1) // FINE_STEP)
    return <uint32_t> (FINE_CLASSES + (size - FINE_LIMIT - 1) // COARSE_STEP)


cdef inline uint32_t piece_bytes(uint32_t index) noexcept nogil:
    if index < FINE_CLASSES:
        return (index + 1) * FINE_STEP
    return FINE_LIMIT + (index - FINE_CLASSES + 1) * COARSE_STEP


cdef void *slab_alloc(size_t size) noexcept nogil:
    cdef uint32_t index
    cdef Chunk *chunk
    cdef char *c_piece
    if size > LARGEST:
        return malloc(size)
    index = class_of(size)
    chunk = partial[index]
    if chunk is NULL:
        chunk = chunk_new(index)
        if chunk is NULL:
            return NULL
    if chunk.free is not NULL:
        c_piece = <char *> chunk.free
        chunk.free = (<void **> c_piece)[0]
    else:
        chunk.fresh -= 1
        c_piece = <char *> chunk + CHUNK_HEAD + <size_t> chunk.fresh * piece_bytes(index)
    chunk.used += 1
    if chunk.free is NULL and chunk.fresh == 0:
        unlink(chunk)
    return c_piece


cdef void slab_free(void *c_piece, size_t size) noexcept nogil:
    cdef Chunk *chunk
    if size > LARGEST:
        free(c_piece)
        return
    chunk = <Chunk *> (<uintptr_t> c_piece & ~<uintptr_t> (CHUNK_BYTES - 1))
    (<void **> c_piece)[0] = chunk.free
    chunk.free = c_piece
    chunk.used -= 1
    if chunk.used == 0 and chunks_of[chunk.index] > 1:
        if chunk.listed:
            unlink(chunk)
        chunk_free(chunk)
    elif not chunk.listed:
        link(chunk)


cdef void link(Chunk *chunk) noexcept nogil:
    """Behind the chunk that is being taken from, so that allocation stays in one place."""
    cdef Chunk *first = partial[chunk.index]
    chunk.listed = 1
    chunk.previous = first
    if first is NULL:
        chunk.next = NULL
        partial[chunk.index] = chunk
        return
    chunk.next = first.next
    first.next = chunk
    if chunk.next is not NULL:
        chunk.next.previous = chunk


cdef void unlink(Chunk *chunk) noexcept nogil:
    chunk.listed = 0
    if chunk.previous is NULL:
        partial[chunk.index] = chunk.next
    else:
        chunk.previous.next = chunk.next
    if chunk.next is not NULL:
        chunk.next.previous = chunk.previous


cdef Chunk *chunk_new(uint32_t index) noexcept nogil:
    global c_spare, spares, chunks
    cdef Chunk *chunk = c_spare
    if chunk is not NULL:
        c_spare = chunk.next
        spares -= 1
    else:
        chunk = map_aligned()
        if chunk is NULL:
            return NULL
        chunks += 1
    if chunks_of[index] > 0:
        madvise(chunk, CHUNK_BYTES, MADV_HUGEPAGE)
    chunks_of[index] += 1
    chunk.free = NULL
    chunk.used = 0
    chunk.fresh = (CHUNK_BYTES - CHUNK_HEAD) // piece_bytes(index)
    chunk.index = index
    link(chunk)
    return chunk


cdef void chunk_free(Chunk *chunk) noexcept nogil:
    global c_spare, spares, chunks
    chunks_of[chunk.index] -= 1
    if spares < MAX_SPARE:
        chunk.next = c_spare
        c_spare = chunk
        spares += 1
    else:
        chunks -= 1
        munmap(chunk, CHUNK_BYTES)


cdef Chunk *map_aligned() noexcept nogil:
    """A chunk at a multiple of its size: mapped twice as large, the rest given back."""
    cdef char *c_mapped = <char *> mmap(NULL, 2 * CHUNK_BYTES, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    cdef size_t before
    if c_mapped == <char *> MAP_FAILED:
        return NULL
    before = <size_t> (-<uintptr_t> c_mapped & (CHUNK_BYTES - 1))
    if before:
        munmap(c_mapped, before)
    munmap(c_mapped + before + CHUNK_BYTES, CHUNK_BYTES - before)
    return <Chunk *> (c_mapped + before)


cdef int64_t slab_bytes() noexcept nogil:
    return chunks * CHUNK_BYTES


def held_bytes() -> int:
    """Bytes held from the system for messages of up to 4 KiB."""
    return slab_bytes()
