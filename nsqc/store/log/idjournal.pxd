# The ids of a log's publishes, in files beside its segments, so that a restart knows them: see publishids.pxd.
#
# A commit writes its ids first, as one block, then its records. So after a kill the end of the log decides: an id
# counts if its offset lies before that. A block takes back all earlier ids from its own offset on: their records were
# refused, and others have these offsets now. After a power failure offsets continue beyond a gap; then a block without
# ids comes first, with the offset where the gap begins.
#
#   ids.NNNNNN, numbers big-endian:
#   offset  bytes  field
#        0      4  magic
#        4      4  CRC-32C of the rest of the head
#        8      4  version: 1
#       12      4  0
#       16     16  key of the hash
#       32      8  id of the log
#       40      n  blocks, one after the other
#
#   A block:
#        0      4  magic
#        4      4  CRC-32C of the rest of the block
#        8      4  ids
#       12      4  0
#       16      8  offset of the first record of the commit
#       24      8  time of the commit, nanoseconds since 1970
#       32     20  of each id: its hash (16), and how far its last record is behind that offset (4)
#
# A file is used for a quarter of the time that ids are remembered, and removed when its last id has expired.

from libc.stdint cimport int64_t, uint64_t

from nsqc.store.log.buffer cimport Buffer
from nsqc.store.publishids cimport PublishId, PublishIds

cdef enum:
    ID_BYTES = 20


cdef struct IdWrite:            # the part of an append
    Buffer out                  # the block; owned; empty: nothing is to be written
    const char *c_folder        # borrowed
    uint64_t key[2]
    uint64_t log_id
    int64_t number              # of the file
    int64_t position            # where the block goes; 0: the file is a new one
    int64_t oldest, keeps       # files from the one number up to the other are removed
    int fd                      # of the file; -1: closed


cdef class IdJournal:
    cdef object folder
    cdef bytes c_folder
    cdef object log             # nsqc.log.Log
    cdef uint64_t key[2]
    cdef int64_t window_ns
    cdef Buffer out             # the block that is being collected
    cdef bint takes_back        # ids in the files are of records that do not count: the next block says so
    cdef int64_t lost_from      # those from this offset on; below 0: from that of the next block
    cdef int64_t number         # of the file that is written to; 0: none is yet
    cdef int64_t position       # where it ends
    cdef int64_t begun_ns       # since 1970: when it was begun
    cdef int64_t oldest         # number of the oldest file
    cdef list ended             # (number, time of its last block) of the files before it
    cdef int64_t last_ns        # time of the last block
    cdef int fd                 # of the file; -1: closed

    cdef int reserve(self, int64_t ids) noexcept                    # room for so many more; -1: no memory
    cdef void add(self, const PublishId *id, int64_t index) noexcept    # index: of its last record in the commit
    cdef inline bint is_due(self) noexcept:
        return self.out.length > 0 or self.takes_back
    cdef void take(self, IdWrite *job, uint64_t log_id, int64_t offset, int64_t wall_ns) noexcept
    cdef void ended_with(self, IdWrite *job, int error) noexcept
    cdef void drop(self) noexcept                                   # what is collected: it is not written
    cdef void begin_anew(self, PublishIds ids) noexcept             # for other ids than before
    cdef void close_file(self) noexcept
    cdef void _set_block(self, IdWrite *job, int64_t offset, int64_t wall_ns) noexcept
    cdef void _put_end_before(self, IdWrite *job, int64_t wall_ns) noexcept
    cdef int _next_file(self, int64_t wall_ns) except -1


cdef int ids_write(IdWrite *job, bint syncs) noexcept nogil     # 0 or errno
cdef void ids_free(IdWrite *job) noexcept nogil
