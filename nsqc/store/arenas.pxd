# Memory chunks of 2 MiB, made resident ahead of use by a dedicated thread.
#
# The first touch of a page costs a page fault: a tenth of a microsecond, or up to 20 ms for a huge page where a
# hypervisor has reclaimed free memory. So the loop does not touch a new chunk if a resident one is free. Free chunks,
# whether populated ahead or handed back, form one LIFO list. The thread populates chunks while they are taken faster
# than they come back, using the kind of page that has been cheaper lately, and releases chunks unused for some seconds.
#
# Address space is reserved in arenas of 32 chunks, each for one kind of page. A released chunk stays in its arena,
# blank.
# Only the loop's thread may call chunk_take() and chunk_give(). The mutex protects all other state.

from libc.stdint cimport int64_t

cdef enum:
    CHUNK_BYTES = 2097152

# A chunk aligned to its size; NULL: no memory. grows: the caller fills all of it and may soon need more, so the
# thread starts to populate. An unpopulated chunk becomes resident page by page, as it is used.
cdef void *chunk_take(bint grows) noexcept nogil
cdef void chunk_give(void *chunk) noexcept nogil
cdef int64_t chunk_bytes() noexcept nogil       # chunks in use, and resident free ones
cdef bint huge_pages_pay() noexcept nogil       # whether huge pages have been cheaper
