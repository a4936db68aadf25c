# Memory for messages: chunks of 2 MiB, each divided into pieces of one size class. Classes are so close to each other
# that a piece is at most a sixteenth larger than its contents. What would fill a sixteenth of a chunk or more has a
# mapping of its own.
#
# Queues fill and drain in order, so chunks become empty one after the other, and go back (arenas.pxd).
#
# Only the loop's thread may call these.

from libc.stdint cimport int64_t, uint32_t

cdef struct Chunk:
    Chunk *next             # in its class's list of chunks with free pieces, or in that of spare chunks
    Chunk *previous
    void *free              # pieces that were freed, chained through their first word
    uint32_t used           # pieces handed out
    uint32_t fresh          # pieces never handed out yet
    uint32_t index          # of its class
    uint32_t piece_bytes    # of its class
    uint32_t listed         # in its class's list

cdef void *slab_alloc(size_t size) noexcept nogil           # NULL: no memory
cdef void slab_free(void *c_piece, size_t size) noexcept nogil     # size as allocated
cdef int64_t slab_bytes() noexcept nogil                    # obtained from the system, including those kept for reuse
