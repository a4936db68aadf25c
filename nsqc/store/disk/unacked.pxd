# Records of a disk queue that are out: handed to a topic or channel that is not done with them. The positions on disk
# stay at the first of these, so after a kill everything that was in flight is delivered again.
#
# It is a chain of places in the order of the queue. Memory depends on how many records are out, not on how far the
# oldest is behind. If there are more than MOST_BYTES between the oldest and the newest, the oldest is let go of:
# otherwise one message that is never finished would keep all files. From then on only a graceful stop keeps it.

from libc.stdint cimport int64_t

cdef enum:
    MOST_BYTES = 1073741824

cdef struct Place:
    # Owned by the chain while it is linked. A place that was let go of is its holder's, and so are all after
    # unacked_drop(). In both cases unacked_done() ends it.
    Place *newer            # neighbours in the chain
    Place *older
    int64_t number, at      # the file, and where in it the record begins
    int64_t serial          # records handed out before; in the debug build -1 once it is done
    int64_t before          # bytes handed out before
    bint linked

cdef struct Unacked:
    Place *oldest           # NULL: nothing is out
    Place *newest
    int64_t serial          # records handed out so far
    int64_t bytes           # handed out so far

cdef Place *unacked_add(Unacked *unacked, int64_t number, int64_t at, int64_t length) noexcept nogil  # NULL: no memory
cdef bint unacked_done(Unacked *unacked, Place *place) noexcept nogil   # whether it was the oldest
cdef int64_t unacked_count(Unacked *unacked) noexcept nogil     # records from the oldest on, done with or not
cdef void unacked_drop(Unacked *unacked) noexcept nogil         # nothing is out; all places are their holders'
cdef int64_t places_alive() noexcept nogil
