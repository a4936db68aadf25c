# The journal of a log: what its channels have done is written in the next loop iteration.
#
# Channels collect operations, each in a buffer of its own; the recorder writes all of them as one frame. A frame that
# cannot be written is kept and retried. While too much is kept, is_full() asks channels to deliver nothing more.

from libc.stdint cimport int64_t, uint32_t, uint64_t
from nsqc.store.backlog cimport CommitSchedule, Scheduled
from nsqc.store.clock cimport Clock
from nsqc.store.disk.pool cimport IoPool, JobOwner
from nsqc.store.log.compact cimport CompactJob
from nsqc.store.log.buffer cimport Buffer
from nsqc.store.log.journalfile cimport JournalJob

cdef enum:
    MOST_KEPT = 8388608     # bytes of operations that wait while the disk fails


cdef class Journaled(JobOwner):
    # A channel, or the topic itself, as the journal sees it.
    cdef int64_t number         # in the journal; below 0: it has no place there
    cdef Buffer ops             # operations that no frame has yet; owned
    cdef int64_t base, last     # offsets: of the section, of the last operation
    cdef int64_t fin_first, fin_count   # finished offsets that are not in ops yet
    cdef bint dirty             # in Recorder.dirty
    cdef Recorder recorder

    cdef void add_fin(self, int64_t offset) noexcept
    cdef void add_fins(self, int64_t first, int64_t count) noexcept
    cdef void add_req(self, int64_t offset, uint32_t attempts, int64_t due_ns) noexcept
    cdef void add_cursor(self, int kind, int64_t cursor) noexcept
    cdef void add_skip(self, int64_t first, int64_t count) noexcept
    cdef void add_name(self, bytes name) noexcept
    cdef void add_drop(self) noexcept
    cdef void mark_dirty(self) noexcept
    cdef void complete(self) noexcept               # the subclass's: what is known but not in ops yet
    cdef int64_t needed_from(self) noexcept         # the subclass's: no offset before this one is needed any more
    cdef char *_room(self, int64_t need, int64_t offset) noexcept
    cdef void _flush_fins(self) noexcept


cdef class Recorder(Scheduled):
    cdef readonly object folder         # of the log
    cdef bytes c_folder
    cdef IoPool io
    cdef CommitSchedule schedule
    cdef object log                     # nsqc.log.Log
    cdef object syncer                  # of the log: began() is called with its owner
    cdef object synced                  # the SyncedQueue that the journal is synced with
    cdef readonly int64_t number        # of the journal that is written
    cdef readonly int64_t at            # where the next frame goes; 0: the file does not exist
    cdef list numbers                   # of journals of earlier runs that are needed
    cdef int64_t began_with             # number of the first journal of this run
    cdef int64_t first_number           # the oldest journal that is needed
    cdef int64_t failed_number          # when compaction failed last
    cdef int64_t older                  # bytes of journals and snapshot before this one
    cdef bint told              # the syncer knows that something waits for a sync
    cdef int64_t next_number            # of the next channel
    cdef int fd                         # -1: closed
    cdef bint stays_open                # from one write to the next
    cdef readonly bint exists           # the folder does
    # Names that were made in the folder so far, and how many of the first of them are on disk. What an earlier run has
    # made counts as one: a kill may have ended it before it synced.
    cdef int64_t names, synced_names
    cdef int64_t syncing_names          # names when the sync under way began
    cdef bint rooted                    # the folder's own name is on disk
    cdef JournalJob job
    cdef bint running                   # job is under way
    cdef bint compacting
    cdef bint active                    # written since the log was last looked at
    cdef list dirty                     # Journaled
    cdef Buffer kept                    # frames that could not be written
    cdef bint twice                     # the next frame is written twice: without it, too much would be finished
    cdef readonly int error             # errno of the last write; 0: it succeeded
    cdef bint closed
    cdef bint forgotten                 # the log is deleted
    cdef list waiting                   # callables for when what is recorded now is written
    cdef list under_way                 # those of the frame that is being written

    cdef inline bint is_full(self) noexcept:
        return self.kept.length >= MOST_KEPT
    cdef bint _gather(self) noexcept
    cdef void _compact(self) noexcept
    cdef void _compacted(self, CompactJob *job) noexcept
    cdef void _failed(self, Buffer *written) noexcept
    cdef void names_synced(self, int64_t names) noexcept    # so many, and the folder's own
    cdef void wrote(self) noexcept                  # something waits for a sync from now on
    cdef void _wrote(self) noexcept
    cdef void _call_waiting(self) noexcept
    cdef void _call_all(self) noexcept
    cdef void forget(self) noexcept
    cdef void close_file(self) noexcept
    cdef void _close_now(self) noexcept
