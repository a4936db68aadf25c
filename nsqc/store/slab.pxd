# Memory for messages: 2 MiB chunks of equal pieces, one chunk for one size class. Size classes are close enough to
# each other that a piece is at most a sixteenth larger than what lies in it. What would fill a sixteenth of a chunk and
# more has a mapping of its own.
#
# Queues fill and drain in order, so chunks empty one after the other; a few are kept for the next messages, the others
# go back to the system. A class that has more than one chunk gets huge pages: a queue that grows by gigabytes would
# else spend most of its time in page faults.
#
# Only the loop's thread may call these.

from libc.stdint cimport int64_t, uint32_t

cdef struct Chunk:
    Chunk *next             # in its class's list of chunks with free pieces, or among the spare ones
    Chunk *previous
    void *free              # pieces given back, chained through their first word
    uint32_t used           # pieces handed out
    uint32_t fresh          # pieces never handed out yet
    uint32_t index          # of its class
    uint32_t piece_bytes    # of its class
    uint32_t listed         # in its class's list

cdef void *slab_alloc(size_t size) noexcept nogil           # NULL: no memory
cdef void slab_free(void *c_piece, size_t size) noexcept nogil     # size as allocated
cdef int64_t slab_bytes() noexcept nogil                    # held from the system, what is kept for later included
