# Memory for messages: chunks of 2 MiB, each divided into pieces of one size class. Size classes are dense: a piece is
# at most 1/16 larger than its contents. Allocations of 1/16 of a chunk or more get a separate mapping.
#
# Queues fill and drain in order, so chunks empty one after another and are returned (arenas.pxd).
#
# Call these only on the loop's thread.

from libc.stdint cimport int64_t, uint32_t

cdef struct Chunk:
    Chunk *next             # in its class's list of chunks with free pieces, or in the spare list
    Chunk *previous
    void *free              # freed pieces, chained through their first word
    uint32_t used           # pieces handed out
    uint32_t fresh          # pieces never handed out
    uint32_t index          # of its class
    uint32_t piece_bytes    # of its class
    uint32_t listed         # in its class's list

cdef void *slab_alloc(size_t size) noexcept nogil           # NULL: no memory
cdef void slab_free(void *c_piece, size_t size) noexcept nogil     # size as allocated
cdef int64_t slab_bytes() noexcept nogil                    # obtained from the system, including memory kept for reuse
