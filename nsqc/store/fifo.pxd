# Messages waiting in memory, first in, first out: a chain of blocks, so growing moves and copies nothing. The queue
# owns one reference per entry.
#
# Nearly all waiting messages have never been delivered and have no delay: their slot is the message's address. For the
# others it is an Entry's address with the lowest bit set.

from libc.stdint cimport int64_t, uint32_t, uintptr_t
from nsqc.store.message cimport Message

cdef struct Entry:
    Message *message
    uint32_t attempts       # deliveries so far
    uint32_t defer_ms       # of a message in a topic: its delay, which starts when a channel takes it

cdef struct FifoBlock:
    FifoBlock *next
    uintptr_t slots[511]    # with next, 4 KiB

cdef struct Fifo:
    FifoBlock *head         # owned, like all blocks after it; NULL while empty
    FifoBlock *tail
    uint32_t first          # index of the oldest slot in head
    uint32_t end            # index after the newest slot in tail
    int64_t count
    int64_t bytes           # of the bodies
    int64_t passed          # position of the first slot of head: entries are numbered, and no number is used twice

cdef struct FifoWalk:
    # A position in a queue for read-only walks. All zeros: the start. Pushes and pops do not end a walk.
    FifoBlock *block        # borrowed; valid while begin is not before the queue's passed
    int64_t begin           # position of its first slot
    int64_t at              # position of the entry

# The entry at walk.at, or the oldest one left; nothing is removed. 1: found, at walk.at; 0: none; -1: too far away for
# one call, call again.
cdef int fifo_look(Fifo *fifo, FifoWalk *walk, Entry *entry) noexcept nogil
cdef Message *fifo_oldest(Fifo *fifo, uint32_t *attempts) noexcept nogil        # borrowed; NULL: empty
cdef int fifo_push(Fifo *fifo, Message *message, uint32_t attempts, uint32_t defer_ms) noexcept nogil  # -1: no memory
cdef bint fifo_pop(Fifo *fifo, Entry *entry) noexcept nogil     # False: empty
cdef void fifo_free(Fifo *fifo) noexcept nogil                  # drops all entries and their references
