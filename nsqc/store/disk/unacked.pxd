# Records of a disk queue that are handed out to a topic or channel and not done yet. The positions on disk stay at the
# first of them, so after a kill everything in flight is delivered again.
#
# A chain of places in queue order. Memory depends on the number of records handed out, not on the lag of the oldest.
# If more than MOST_BYTES lie between the oldest and the newest, the oldest is released: otherwise one message that is
# never finished would keep all files. From then on only a graceful stop preserves it.

from libc.stdint cimport int64_t

cdef enum:
    MOST_BYTES = 1073741824

cdef struct Place:
    # Owned by the chain while linked. A released place belongs to its holder, and so do all places after
    # unacked_drop(). In both cases unacked_done() frees it.
    Place *newer            # neighbours in the chain
    Place *older
    int64_t number, at      # the file, and the offset of the record
    int64_t serial          # records handed out before; in the debug build -1 once done
    int64_t before          # bytes handed out before
    bint linked

cdef struct Unacked:
    Place *oldest           # NULL: nothing is handed out
    Place *newest
    int64_t serial          # records handed out so far
    int64_t bytes           # handed out so far

cdef Place *unacked_add(Unacked *unacked, int64_t number, int64_t at, int64_t length) noexcept nogil  # NULL: no memory
cdef bint unacked_done(Unacked *unacked, Place *place) noexcept nogil   # whether it was the oldest
cdef int64_t unacked_count(Unacked *unacked) noexcept nogil     # records from the oldest on, done or not
cdef void unacked_drop(Unacked *unacked) noexcept nogil         # forgets all; the places belong to their holders
