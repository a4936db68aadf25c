# Chunks of 2 MiB of memory, made resident ahead of their use by a thread of its own.
#
# The first touch of a page costs what the system needs to find it: a tenth of a microsecond, or, where a hypervisor has
# taken free memory back, up to 20 ms for a huge page. So no chunk is touched for the first time on the loop if a
# resident one is free. Free chunks, whether they were populated or handed back, are in one list, the last one in first
# out. The thread populates while chunks are taken faster than they come back, with the kind of page that has been
# cheaper lately, and releases what has not been needed for some seconds.
#
# Address space comes in arenas of 32 chunks, each for one kind of page. A released chunk stays in its arena, blank.
#
# chunk_take() and chunk_give() may be called by the loop's thread only. All other state belongs to the mutex.

from libc.stdint cimport int64_t

cdef enum:
    CHUNK_BYTES = 2097152

# A chunk at a multiple of its size; NULL: no memory. grows: the caller fills all of it and may soon want more; the
# thread starts to populate. An unpopulated chunk becomes resident page by page, as it is used.
cdef void *chunk_take(bint grows) noexcept nogil
cdef void chunk_give(void *chunk) noexcept nogil
cdef int64_t chunk_bytes() noexcept nogil       # of the chunks in use and of free ones that are resident
cdef bint huge_pages_pay() noexcept nogil       # whether huge pages have been the cheaper kind
