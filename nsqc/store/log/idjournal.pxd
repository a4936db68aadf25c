# The ids of a log's publishes, in files next to its segments, so that they survive a restart: see publishids.pxd.
#
# A commit first writes its ids as one frame, then its records. So after a kill the end of the log decides: an id counts
# if its offset lies before that. A frame revokes all earlier ids from its own offset on: their records were refused,
# and later records have taken these offsets. After a power failure offsets resume after a gap; then a frame without
# ids comes first, with the offset where the gap begins.
# docs/ondisk.md has the format. A file is used for a quarter of the time that ids are remembered, and removed when its
# last id has expired.

from libc.stdint cimport int64_t, uint64_t

from nsqc.store.log.buffer cimport Buffer
from nsqc.store.publishids cimport PublishId, PublishIds

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
