# Messages waiting in memory, first in, first out: a chain of blocks, so nothing is moved or copied when it grows. It
# owns one reference for each entry.
#
# Nearly all waiting messages have never been delivered and have no delay: their slot is the address of the message. For
# others it is that of an Entry, with the lowest bit set.

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
    FifoBlock *head         # owned, like all blocks behind it; NULL while empty
    FifoBlock *tail
    uint32_t first          # index of the oldest slot in head
    uint32_t end            # index behind the newest slot in tail
    int64_t count

cdef int fifo_push(Fifo *fifo, Message *message, uint32_t attempts, uint32_t defer_ms) noexcept nogil  # -1: no memory
cdef bint fifo_pop(Fifo *fifo, Entry *entry) noexcept nogil     # False: empty
cdef void fifo_free(Fifo *fifo) noexcept nogil                  # drops all entries and their references
