"""The allocator behind messages. See the .pxd."""

from libc.stdint cimport int64_t, uint32_t, uintptr_t
from posix.mman cimport MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, PROT_READ, PROT_WRITE, mmap, munmap

from nsqc.store.arenas cimport CHUNK_BYTES, chunk_bytes, chunk_give, chunk_take, huge_pages_pay

cdef extern from "<sys/mman.h>" nogil:
    int madvise(void *addr, size_t length, int advice)
    int MADV_HUGEPAGE

cdef extern from *:
    int clz "__builtin_clz"(unsigned int value) nogil

cdef enum:
    CHUNK_HEAD = 64
    ROOM = CHUNK_BYTES - CHUNK_HEAD
    # Size classes of small pieces.
    FINE_STEP = 8           # up to FINE_LIMIT
    FINE_LIMIT = 256
    STEP = 32               # up to SMALL_LIMIT
    SMALL_LIMIT = 2048
    FINE_CLASSES = 32
    SMALL_CLASSES = 88
    # Classes of larger pieces, by pieces per chunk: OCTAVE classes between a power of two and the next.
    OCTAVE = 16
    LEAST_PIECES = 16
    CLASSES = 200           # up to 2048 pieces: more than the smallest of them needs
    LARGEST = ROOM // LEAST_PIECES & ~7     # larger pieces get a mapping each
    # Mappings kept for reuse.
    PAGE_BYTES = 4096
    HUGE_FROM = 4194304
    KEPT_MAPPINGS = 8
    KEPT_BYTES = 16777216

cdef struct Mapping:        # at the start of a mapping while it is kept
    Mapping *next
    size_t bytes

cdef Chunk *partial[CLASSES]        # chunks with free pieces, the current one first
cdef uint32_t chunks_of[CLASSES]
cdef Mapping *c_kept = NULL
cdef int kept = 0
cdef size_t kept_bytes = 0
cdef int64_t mapped_bytes = 0


cdef inline uint32_t class_of(size_t size) noexcept nogil:
    cdef uint32_t pieces, octave
    if size <= FINE_LIMIT:
        return <uint32_t> ((size - 1) // FINE_STEP)
    if size <= SMALL_LIMIT:
        return <uint32_t> (FINE_CLASSES + (size - FINE_LIMIT - 1) // STEP)
    pieces = <uint32_t> (ROOM // ((size + 7) & ~<size_t> 7))
    octave = <uint32_t> (31 - clz(pieces)) - 4
    return SMALL_CLASSES + octave * OCTAVE + ((pieces >> octave) - LEAST_PIECES)


cdef inline uint32_t piece_bytes(uint32_t index) noexcept nogil:
    if index < FINE_CLASSES:
        return (index + 1) * FINE_STEP
    if index < SMALL_CLASSES:
        return FINE_LIMIT + (index - FINE_CLASSES + 1) * STEP
    index -= SMALL_CLASSES
    return (ROOM // ((LEAST_PIECES + index % OCTAVE) << (index // OCTAVE))) & ~<uint32_t> 7


cdef void *slab_alloc(size_t size) noexcept nogil:
    cdef uint32_t index
    cdef Chunk *chunk
    cdef char *c_piece
    if size > LARGEST:
        return map_new(size)
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
        c_piece = <char *> chunk + CHUNK_HEAD + <size_t> chunk.fresh * chunk.piece_bytes
    chunk.used += 1
    if chunk.free is NULL and chunk.fresh == 0:
        unlink(chunk)
    return c_piece


cdef void slab_free(void *c_piece, size_t size) noexcept nogil:
    cdef Chunk *chunk
    if size > LARGEST:
        map_free(c_piece, size)
        return
    chunk = <Chunk *> (<uintptr_t> c_piece & ~<uintptr_t> (CHUNK_BYTES - 1))
    (<void **> c_piece)[0] = chunk.free
    chunk.free = c_piece
    chunk.used -= 1
    if chunk.used == 0:
        if chunk.listed:
            unlink(chunk)
        chunk_free(chunk)
    elif not chunk.listed:
        link(chunk)


# ---------------------------------------------------------------------- mappings

cdef inline size_t pages(size_t size) noexcept nogil:
    return (size + PAGE_BYTES - 1) & ~<size_t> (PAGE_BYTES - 1)


cdef void *map_new(size_t size) noexcept nogil:
    """A kept mapping of exactly this many pages, or a new one."""
    global c_kept, kept, kept_bytes, mapped_bytes
    cdef size_t need = pages(size)
    cdef Mapping **c_at = &c_kept
    cdef Mapping *mapping
    cdef void *c_mapped
    while c_at[0] is not NULL:
        mapping = c_at[0]
        if mapping.bytes == need:
            c_at[0] = mapping.next
            kept -= 1
            kept_bytes -= need
            return mapping
        c_at = &mapping.next
    c_mapped = mmap(NULL, need, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    if c_mapped == MAP_FAILED:
        return NULL
    if need >= HUGE_FROM and huge_pages_pay():
        madvise(c_mapped, need, MADV_HUGEPAGE)
    mapped_bytes += need
    return c_mapped


cdef void map_free(void *c_mapped, size_t size) noexcept nogil:
    global c_kept, kept, kept_bytes, mapped_bytes
    cdef size_t bytes = pages(size)
    cdef Mapping *mapping = <Mapping *> c_mapped
    if kept < KEPT_MAPPINGS and kept_bytes + bytes <= KEPT_BYTES:
        mapping.bytes = bytes
        mapping.next = c_kept
        c_kept = mapping
        kept += 1
        kept_bytes += bytes
        return
    mapped_bytes -= bytes
    munmap(c_mapped, bytes)


# ---------------------------------------------------------------------- chunks

cdef void link(Chunk *chunk) noexcept nogil:
    """Inserts it after the current chunk, so allocation stays in one place."""
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
    # The first chunk of a class may hold only a few pieces.
    cdef Chunk *chunk = <Chunk *> chunk_take(chunks_of[index] > 0)
    if chunk is NULL:
        return NULL
    chunks_of[index] += 1
    chunk.free = NULL
    chunk.used = 0
    chunk.piece_bytes = piece_bytes(index)
    chunk.fresh = ROOM // chunk.piece_bytes
    chunk.index = index
    link(chunk)
    return chunk


cdef void chunk_free(Chunk *chunk) noexcept nogil:
    chunks_of[chunk.index] -= 1
    chunk_give(chunk)


cdef int64_t slab_bytes() noexcept nogil:
    return chunk_bytes() + mapped_bytes


def held_bytes() -> int:
    """Bytes obtained from the system for messages, including memory kept for reuse."""
    return slab_bytes()
