# Publish ids that topics remember.

from libc.stdint cimport int64_t, uint32_t, uint64_t

from nsqc.store.log.frame cimport Buffer


# ====================================================================== table
# The ids of recent publishes to one topic: a publish with a known id is not stored again.
#
# An id is stored as a keyed 128-bit hash (SipHash-1-3 with a random key), so clients cannot choose ids that collide.
# Entries are numbered in the order of their publishes, which is the order in which they expire:
#
#   chunks of 256 entries, oldest first     | 24 bytes an id | ...
#   slots, open addressing                  | low half of the number, low half of the hash | ...
#
# No call works on all ids at once: a table that grows or shrinks has two arrays of slots, and each call moves a few.
# Including slots, an id takes 40 to 72 bytes, most while the table grows.

cdef enum:
    MOST_ID_BYTES = 64

cdef struct PublishId:
    uint64_t low, high          # the hash

cdef struct IdEntry:
    PublishId id
    uint32_t ticks              # when it was entered
    uint32_t state              # IdState, or the commit that decides

cdef enum IdState:
    ID_STORED
    ID_OPEN                     # its messages are being published
    ID_VOID                     # no longer counts, and no slot refers to it
    ID_COMMIT = 4               # plus the serial of a commit; states from here on: that commit decides

cdef enum IdVerdict:
    ID_CLAIMED                  # it is new: publish, then keep() or release()
    ID_KNOWN                    # it is stored
    ID_COLLECTED                # it is in the commit being collected
    ID_RUNNING                  # it is in the commit in progress
    ID_TAKEN                    # another client is publishing it
    ID_NO_MEMORY


cdef class PublishIds:
    cdef int64_t window_ns
    cdef int64_t window         # ticks
    cdef readonly int64_t limit         # ids; beyond it the oldest are forgotten
    cdef readonly int64_t count         # remembered ids, including those that have expired since the last call
    cdef readonly uint64_t forgotten    # ids forgotten before their time, because of the limit
    cdef int64_t failures       # failed commits
    cdef uint64_t key[2]
    cdef IdEntry **chunks       # owned, with the chunks; a ring, by number
    cdef int64_t room           # of the ring: a power of two
    cdef IdEntry *spare         # owned; NULL: none
    cdef int64_t first, next    # numbers of the oldest entry, and of the next one
    cdef int64_t opened         # entries that are ID_OPEN
    cdef uint64_t *slots        # owned; 0: free
    cdef uint64_t *before       # owned: the slots being moved to `slots`; NULL: none
    cdef uint32_t mask, before_mask
    cdef int64_t moved          # how many of those have been moved
    cdef Buffer collected       # numbers of the entries in the commit being collected
    cdef Buffer under_way       # numbers of the entries in the commit in progress

    cdef void hash(self, const char *c_id, Py_ssize_t length, PublishId *id) noexcept nogil
    # Returns an IdVerdict. With ID_CLAIMED, number is that of its new entry.
    cdef int claim(self, const PublishId *id, int64_t now_ns, int64_t serial, int64_t *number) noexcept
    cdef void keep(self, int64_t number) noexcept                       # it is stored
    cdef void keep_if_collected(self, int64_t number, int64_t serial) noexcept    # the commit being collected decides
    cdef void keep_if_running(self, int64_t number, int64_t serial) noexcept      # the commit in progress decides
    cdef void release(self, int64_t number) noexcept                    # it is not stored
    cdef bint is_open(self, int64_t number) noexcept
    cdef void commit_began(self) noexcept
    cdef void commit_ended(self, int error) noexcept
    # From a log, in publishing order; age_ns: time since the publish. -1: no memory.
    cdef int restore(self, const PublishId *id, int64_t now_ns, int64_t age_ns) noexcept
    cdef bint expire(self, int64_t now_ns, int64_t most) noexcept       # whether there is more to forget
    cdef int64_t memory(self) noexcept                                  # approximate bytes
    cdef void set_rule(self, int64_t window_ns, int64_t limit) noexcept

    cdef int _verdict(self, const IdEntry *entry, int64_t serial) noexcept
    cdef void _depend(self, int64_t number, int64_t serial, Buffer *numbers) noexcept
    cdef IdEntry *_entry(self, int64_t number) noexcept nogil
    cdef int64_t _number(self, uint32_t low) noexcept nogil
    cdef int64_t _find_in(self, const PublishId *id, const uint64_t *slots, uint32_t mask) noexcept nogil
    cdef int64_t _find(self, const PublishId *id) noexcept nogil        # its number; 0: unknown
    cdef IdEntry *_append(self, const PublishId *id, int64_t ticks) noexcept
    cdef int _reserve(self) noexcept
    cdef bint _begin(self) noexcept
    cdef int _make_chunk(self) noexcept
    cdef void _free_all(self) noexcept
    cdef bint _resize(self, uint64_t size) noexcept
    cdef void _move(self, int64_t most) noexcept nogil
    cdef void _insert(self, uint64_t slot) noexcept nogil
    cdef void _unslot(self, const IdEntry *entry, int64_t number) noexcept nogil
    cdef void _void(self, IdEntry *entry, int64_t number) noexcept
    cdef void _drop_first(self) noexcept


# Whether clients may give this id: 1 to MOST_ID_BYTES printable ASCII characters, no blanks.
cdef bint is_publish_id(const char *c_id, Py_ssize_t length) noexcept nogil
