# Messages, their ids, and what holds them: FIFO, places on disk, deliveries, heap, in-flight table.

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t, uintptr_t


# ====================================================================== message
# A message: one C allocation for header and body, shared by the channels that hold it.
#
# Ownership: a holder of a Message pointer holds one reference and drops it with message_unref(). A function that
# "takes" a message takes over the reference.

cdef struct Message:
    uint32_t refs           # holders: queues, deliveries and, briefly, the command that created it
    uint32_t size           # of the body, bytes
    int64_t timestamp_ns    # publish time, nanoseconds since 1970
    char id[16]             # as on the wire: 16 hexadecimal digits, no terminator
    char body[1]            # size bytes follow


# A message with one reference. The body is copied from c_body, or unset if c_body is NULL. NULL: no memory.
cdef Message *message_new(const char *c_id, int64_t timestamp_ns, const char *c_body, uint32_t size) noexcept nogil
cdef void message_ref(Message *message) noexcept nogil
cdef void message_unref(Message *message) noexcept nogil


# ====================================================================== guid
# Message ids: 64 bits, written as 16 hexadecimal digits.
#
#   bits   meaning
#   63-22  time in units of 2^20 ns (about a millisecond) since EPOCH_UNITS
#   21-12  node id
#   11-0   sequence within the unit

cdef enum:
    SPARE_UNITS = 1024          # of 4096 ids each, below the bound


cdef class GuidFactory:
    cdef int64_t node_bits      # node id, shifted into place
    cdef int64_t unit           # of the last id; may run ahead of the clock, never decreases
    cdef int64_t sequence       # of the last id within its unit
    cdef int64_t bound          # the highest unit that ids may reach: it is on disk; see set_bound()
    cdef int64_t follow_to      # ids follow the clock up to this unit
    cdef public str reason      # why the bound cannot be raised, for refused publishers

    @staticmethod
    cdef GuidFactory new(int64_t node_id, int64_t first_unit)

    # Whether publishes have to be refused: the remaining ids are for messages that are already accepted.
    cdef inline bint is_short(self) noexcept:
        return self.unit >= self.bound - SPARE_UNITS

    # Writes the next id, 16 digits, to c_to. wall_ns: the current time.
    cdef void next(self, int64_t wall_ns, char *c_to) noexcept
    cdef bytes last(self)                                           # the one that was written last
    # Draws consecutive ids and returns the first: the others are guid_after() it.
    cdef int64_t take(self, int64_t count, int64_t wall_ns) noexcept


# The id `count` after another one, within a range reserved by take().
cdef inline int64_t guid_after(int64_t first, int64_t count) noexcept nogil:
    cdef int64_t number = (first >> 22 << 12 | first & 0xFFF) + count
    return number >> 12 << 22 | first & 0x3FF000 | number & 0xFFF

cdef void guid_write(int64_t id, char *c_to) noexcept nogil     # 16 digits
# Writes consecutive ids reserved by take(), starting with this one.
cdef void guid_write_range(int64_t first, int64_t count, char *c_to) noexcept nogil


# ====================================================================== fifo
# Messages waiting in memory, first in, first out: a chain of blocks, so growing moves and copies nothing. The queue
# owns one reference per entry.
#
# Nearly all waiting messages have never been delivered and have no delay: their slot is the message's address. For the
# others it is an Entry's address with the lowest bit set.

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


# ====================================================================== unacked
# Records of a disk queue that are handed out to a topic or channel and not done yet. The positions on disk stay at the
# first of them, so after a kill everything in flight is delivered again.
#
# A chain of places in queue order. Memory depends on the number of records handed out, not on the lag of the oldest.
# If more than MOST_BYTES lie between the oldest and the newest, the oldest is released: otherwise one message that is
# never finished would keep all files. From then on only a graceful stop preserves it.

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


# ====================================================================== delivery
# A channel's record of one message in flight or deferred.
#
# A Delivery owns one reference to its message. It is in one heap (slot is its index there) and, while in flight, also
# in the channel's InFlightMap.

cdef struct Delivery:
    Message *message
    int64_t deadline_ns     # monotonic: time-out of an in-flight message, due time of a deferred one
    int64_t delivered_ns    # monotonic: when it was delivered; bounds TOUCH. Of a dead or RETURNED one: its last owner
    Place *place            # of its record in the disk queue it came from, or NULL; the holder's
    int64_t offset          # in the topic's log; below 0: not from a log
    int64_t owner           # id of the consumer it is in flight to; 0: deferred
    uint32_t slot           # index in the heap
    uint16_t attempts       # as last delivered
    uint16_t reason         # why it goes to the dead-letter topic: nsqc.broker.leaving.DeadReason


cdef bint delivery_reserve() noexcept nogil             # reserves memory for one more; False: no memory
cdef Delivery *delivery_new(Message *message, uint16_t attempts) noexcept nogil     # takes the reference
cdef void delivery_free(Delivery *delivery) noexcept nogil                          # drops the reference
cdef Message *delivery_take(Delivery *delivery) noexcept nogil      # frees the delivery; the caller gets the reference


# ====================================================================== heap
# A binary heap of deliveries by deadline. Each delivery stores its slot, so removing one from the middle is cheap. The
# heap does not own the deliveries.

cdef struct HeapItem:
    int64_t deadline_ns     # copy of the delivery's: comparisons touch only this array
    Delivery *delivery

cdef struct Heap:
    HeapItem *items         # owned; NULL while empty
    uint32_t count
    uint32_t room

cdef bint heap_reserve(Heap *heap) noexcept nogil       # reserves space for one more; False: no memory
cdef int heap_push(Heap *heap, Delivery *delivery) noexcept nogil           # 0; -1: no memory
cdef void heap_remove(Heap *heap, Delivery *delivery) noexcept nogil
cdef void heap_moved(Heap *heap, Delivery *delivery) noexcept nogil         # after its deadline changed
cdef int64_t heap_least(const Heap *heap, int64_t least) noexcept nogil     # the lowest offset in the log, or least
# Frees the deliveries with messages of the log. They must not be in flight.
cdef void heap_drop_logged(Heap *heap) noexcept
cdef void heap_free(Heap *heap) noexcept nogil


cdef inline Delivery *heap_first(Heap *heap) noexcept nogil:
    return heap.items[0].delivery if heap.count else NULL


# ====================================================================== inflight
# Maps message ids to deliveries: open addressing with linear probing. Does not own the deliveries.
#
# An id can occur more than once: a queue that lost its positions in a crash may hold a message twice, and each copy
# has its own delivery.

cdef struct IdSlot:
    uint64_t hash
    Delivery *delivery      # NULL: free

cdef struct InFlightMap:
    IdSlot *slots           # owned; NULL while empty
    uint32_t count
    uint32_t mask           # number of slots - 1; slots are a power of two

cdef bint inflight_reserve(InFlightMap *map) noexcept nogil      # reserves space for one more; False: no memory
cdef int inflight_add(InFlightMap *map, Delivery *delivery) noexcept nogil       # 0; -1: no memory
# The delivery with this id that belongs to owner, otherwise any with this id, otherwise NULL.
cdef Delivery *inflight_find(InFlightMap *map, const char *c_id, int64_t owner) noexcept nogil
# For many ids in one buffer, `stride` bytes apart: prefetches the cache lines for the next ones. c_id: the current id,
# already validated; c_end: end of the buffer, whose other bytes are untrusted.
cdef void inflight_expect(InFlightMap *map, const char *c_id, const char *c_end, Py_ssize_t stride) noexcept nogil
cdef void inflight_remove(InFlightMap *map, Delivery *delivery) noexcept nogil
cdef void inflight_free(InFlightMap *map) noexcept nogil
