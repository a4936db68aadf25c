# The journal of a log: what its channels have done is written in the next loop iteration.
#
# Channels add operations to the frame that is being filled. One that cannot be written is retried, with what has been
# added meanwhile. While too much waits, is_full() asks channels to deliver nothing more.

from libc.stdint cimport int64_t, uint32_t
from nsqc.store.backlog cimport CommitSchedule, Scheduled
from nsqc.store.disk.pool cimport IoPool, JobOwner
from nsqc.store.log.buffer cimport Buffer
from nsqc.store.log.journalfile cimport JournalFile
from nsqc.store.log.journaljobs cimport Compaction, JournalJob

cdef enum:
    MOST_KEPT = 8388608     # bytes of operations that wait


cdef class Journaled(JobOwner):
    # A channel, or the topic itself, as the journal sees it.
    cdef int64_t number         # in the journal; below 0: it has no place there
    cdef bint dirty             # in Recorder.dirty: complete() is called before the next frame is written
    cdef int64_t fin_frame      # Recorder.frame in which its last operation is an OP_FIN,
    cdef int64_t fin_at         # which lies there,
    cdef int64_t fin_end        # and ends here
    cdef Recorder recorder

    # False: it is lost for want of memory, which costs a delivery after a kill; or it has no place.
    cdef bint add(self, int kind, int64_t offset, int64_t value, uint32_t attempts) noexcept
    cdef void add_fin(self, int64_t first, int64_t end) noexcept
    cdef void add_name(self, bytes name) noexcept
    cdef void mark_dirty(self) noexcept
    cdef void complete(self) noexcept               # the subclass's: what is known but not added yet
    cdef int64_t needed_from(self) noexcept         # the subclass's: no offset before this one is needed any more


cdef class Recorder(Scheduled):
    cdef readonly object folder         # of the log
    cdef bytes c_folder
    cdef IoPool io
    cdef CommitSchedule schedule
    cdef object log                     # nsqc.log.Log
    cdef object syncer                  # of the log: began() is called with its owner
    cdef object synced                  # the SyncedQueue that the journal is synced with
    cdef JournalFile file               # that is appended to
    cdef int64_t id                     # of the next frame
    cdef list numbers                   # of the files there are
    cdef list replaced                  # those of them that a compaction replaces
    cdef int64_t base                   # bytes of the state that they begin with
    cdef bint renews                    # a file with their state replaces them, however small they are
    cdef bint told                      # the syncer was notified that something waits for a sync
    cdef int64_t next_number            # of the next channel
    cdef readonly bint exists           # the folder does
    # Names that were made in the folder so far, and how many of the first of them are on disk. What an earlier run has
    # made counts as one: a kill may have ended it before it synced.
    cdef int64_t names, synced_names
    cdef int64_t syncing_names          # names when the sync under way began
    cdef bint rooted                    # the folder's own name is on disk
    cdef Buffer ops                     # the frame that is being filled; owned
    cdef Buffer spare                   # memory for the next one
    cdef int64_t frame                  # which one that is
    cdef bint twice                     # it is written twice: without it, too much would be finished
    cdef JournalJob job
    cdef bint running                   # job is under way
    cdef Compaction *compaction         # owned; NULL: none
    cdef bint active                    # written since the log was last looked at
    cdef list dirty                     # Journaled
    cdef readonly int error             # errno of the last write; 0: it succeeded
    cdef bint closed
    cdef bint forgotten                 # the log is deleted
    cdef list waiting                   # callables for when what is recorded now is written
    cdef list under_way                 # those of the frame that is being written

    cdef inline bint is_full(self) noexcept:
        return self.ops.length >= MOST_KEPT
    cdef char *room(self, int64_t bytes) noexcept   # at the end of the frame; NULL: no memory
    cdef void _submit(self) noexcept
    cdef void _failed(self) noexcept
    cdef void _wrote(self) noexcept
    cdef void _compact(self) noexcept
    cdef void _compacted(self) noexcept
    cdef void names_synced(self, int64_t names) noexcept    # the first ones, and the folder's own
    cdef void wrote(self) noexcept                  # something waits for a sync from now on
    cdef void _call_waiting(self) noexcept
    cdef void _call_all(self) noexcept
    cdef void forget(self) noexcept
    cdef void close_file(self) noexcept
