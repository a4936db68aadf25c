# Publish ids that topics remember, and their files beside a log.

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
    # From a journal, in publishing order; age_ns: time since the publish. -1: no memory.
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


# ====================================================================== journal of ids
# The ids of a log's publishes, in files next to its segments, so that they survive a restart: see publishids.pxd.
#
# A commit first writes its ids as one frame, then its records. So after a kill the end of the log decides: an id counts
# if its offset lies before that. A frame revokes all earlier ids from its own offset on: their records were refused,
# and later records have taken these offsets. After a power failure offsets resume after a gap; then a frame without
# ids comes first, with the offset where the gap begins.
# docs/ondisk.md has the format. A file is used for a quarter of the time that ids are remembered, and removed when its
# last id has expired.

cdef enum:
    ID_BYTES = 20


cdef struct IdWrite:            # the ids of an append
    Buffer out                  # a frame with the ids; owned; empty: nothing to write
    const char *c_folder        # borrowed
    uint64_t key[2]
    uint64_t log_id
    int64_t number              # of the file
    int64_t position            # where the frame goes; 0: a new file
    int64_t offset, time_ns     # of the commit
    int64_t lost_from           # earlier ids from this offset on do not count; below 0: from `offset` on
    int64_t oldest, keeps       # removes the files from number `oldest` to before `keeps`
    int fd                      # of the file; -1: closed


cdef class IdJournal:
    cdef object folder
    cdef bytes c_folder
    cdef object log             # nsqc.log.Log
    cdef uint64_t key[2]
    cdef int64_t window_ns
    cdef Buffer out             # the frame being filled
    cdef bint takes_back        # ids in the files belong to refused records: the next frame revokes them
    cdef int64_t lost_from      # from this offset on; below 0: from that of the next frame
    cdef int64_t number         # of the file being written; 0: none yet
    cdef int64_t position       # where it ends
    cdef int64_t begun_ns       # when it was begun, since 1970
    cdef int64_t oldest         # number of the oldest file
    cdef list ended             # (number, time of its last frame) of the files before it
    cdef int64_t last_ns        # time of the last frame
    cdef int fd                 # of the file; -1: closed

    cdef int reserve(self, int64_t ids) noexcept                    # makes room for more ids; -1: no memory
    cdef void add(self, const PublishId *id, int64_t index) noexcept    # index: of its last record in the commit
    cdef inline bint is_due(self) noexcept:
        return self.out.length > 0 or self.takes_back
    cdef void take(self, IdWrite *job, uint64_t log_id, int64_t offset, int64_t wall_ns) noexcept
    cdef void ended_with(self, IdWrite *job, int error) noexcept
    cdef void drop(self) noexcept                                   # drops the collected ids unwritten
    cdef void restart(self, PublishIds ids) noexcept             # starts over with other ids
    cdef void close_file(self) noexcept
    cdef int _next_file(self, int64_t wall_ns) except -1


cdef int ids_write(IdWrite *job, bint syncs) noexcept nogil     # 0 or errno
cdef void ids_free(IdWrite *job) noexcept nogil
