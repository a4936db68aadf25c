# The journal of cursors: its files, the jobs on them, and the recorder that writes it. positions.pxd has the
# operations, and the states that they make.

from libc.stdint cimport int64_t, uint32_t

from nsqc.store.disk.fileio cimport IoPool, Job
from nsqc.store.log.frame cimport FRAME_HEAD, RECORD_SIZE, Buffer
from nsqc.store.log.positions cimport JournalState
from nsqc.store.work cimport CommitSchedule, LoopWork


# ====================================================================== journal files
# Files of a journal, cursors.NNNNNN in the folder of a log: docs/ondisk.md has the format. No Python.

cdef enum:
    OPS_AT = FRAME_HEAD + RECORD_SIZE   # where in a frame the operations lie

cdef struct JournalFile:        # the file that frames are appended to
    int fd                      # -1: closed
    int64_t number              # in its name
    int64_t begins              # number of the state that it begins with; 0: none
    int64_t position            # where the next frame goes

cdef struct FoundFile:
    int64_t number
    bint damaged                # part of it is unusable

cdef struct FoundFiles:
    FoundFile *items            # owned; by number
    int64_t count, room
    JournalFile last            # the newest one with frames, or a new one; closed
    int64_t state_bytes         # bytes of the newest state that a file begins with
    int64_t torn_bytes          # at the end of files, as after a kill


cdef int64_t journal_number(const char *c_name) noexcept nogil      # from a file name; 0: not a journal's
cdef int files_add(FoundFiles *files, int64_t number) noexcept nogil        # 0 or ENOMEM
cdef void files_free(FoundFiles *files) noexcept nogil
cdef int files_load(FoundFiles *files, JournalState *state, const char *c_folder) noexcept nogil    # 0 or errno
cdef int64_t files_free_number(const FoundFiles *files, int64_t number) noexcept nogil      # the first from there on


# ====================================================================== journal jobs
# Journal jobs on the threads of an IoPool: append to it, and replace its files by one with their state.

cdef struct Compaction:
    Job job
    const char *c_folder        # borrowed
    FoundFiles files            # owned: the files to replace, which no longer grow
    JournalFile file            # the replacement, with a given number
    bint placed                 # the file has its final name
    int error                   # errno; the replaced files may still exist

cdef struct JournalJob:
    Job job
    const char *c_folder        # borrowed
    JournalFile file
    Buffer out                  # owned: a frame of operations
    int64_t id                  # its number
    int copies                  # how often to write it
    bint makes_folder
    int error


# The steps of a compaction: writes the state under a temporary name and syncs it, renames it, removes the replaced
# files. A kill between any two leaves files with the same content.
cdef void compact_write(Compaction *job) noexcept nogil
cdef void compact_place(Compaction *job) noexcept nogil
cdef void compact_clean(Compaction *job) noexcept nogil
cdef void compaction_free(Compaction *job) noexcept nogil


# ====================================================================== recorder
# The journal of a log: records the progress of its channels in the next loop iteration.
#
# Channels add operations to the open frame. A frame that cannot be written is retried, with the operations added
# meanwhile. While too many bytes wait, is_full() tells channels to stop delivering.

cdef enum:
    MOST_KEPT = 8388608     # bytes of waiting operations


cdef class Journaled(LoopWork):
    # A channel, or the topic itself, for the journal. After mark_dirty(), run() adds pending operations to the frame.
    cdef int64_t number         # in the journal; below 0: it is not recorded
    cdef int64_t fin_frame      # Recorder.frame with its last operation, an OP_FIN,
    cdef int64_t fin_at         # which begins here,
    cdef int64_t fin_end        # and ends here
    cdef Recorder recorder

    # False: lost for lack of memory, which costs a redelivery after a kill; or it is not recorded.
    cdef bint add(self, int kind, int64_t offset, int64_t value, uint32_t attempts) noexcept
    cdef void add_fin(self, int64_t first, int64_t end) noexcept
    cdef void add_name(self, bytes name) noexcept
    cdef void mark_dirty(self) noexcept


cdef class Recorder(LoopWork):
    cdef readonly str folder        # of the log
    cdef bytes c_folder
    cdef IoPool io
    cdef CommitSchedule schedule
    cdef object log                     # nsqc.log.Log
    cdef object syncer                  # of the log: began() is called with its owner
    cdef object synced                  # the SyncedQueue that the journal is synced with
    cdef JournalFile file               # the file to append to
    cdef int64_t id                     # of the next frame
    cdef list numbers                   # of the existing files
    cdef list replaced                  # those that the running compaction replaces
    cdef int64_t base                   # bytes of the states that they begin with
    cdef bint renews                    # compact the files, however small
    cdef bint told                      # the syncer knows that data waits for a sync
    cdef bint lags                      # operations may have been written since the last sync began
    cdef int64_t next_number            # of the next channel
    cdef int64_t removed_number         # of the entry REMOVED; below 0: none
    cdef readonly bint exists           # the folder exists
    # Count of names created in the folder, and how many of the first of them are on disk. All names of an earlier run
    # count as one: a kill may have ended it before it synced.
    cdef int64_t names, synced_names
    cdef int64_t syncing_names          # names when the running sync began
    cdef bint rooted                    # the folder's own name is on disk
    cdef Buffer ops                     # the open frame; owned
    cdef Buffer spare                   # memory for the next one
    cdef int64_t frame                  # number of the open frame
    cdef bint twice                     # write it twice: losing it would finish too much
    cdef JournalJob job
    cdef bint running                   # job is running
    cdef Compaction *compaction         # owned; NULL: none
    cdef bint active                    # written since the last check for idleness
    cdef list dirty                     # Journaled
    cdef readonly int error             # errno of the last write; 0: it succeeded
    cdef bint closed
    cdef bint forgotten                 # the log was deleted
    cdef public object changed          # called with the bytes of each write to the journal or the log; None: unset
    cdef list waiting                   # callables for when the recorded operations are written
    cdef list under_way                 # those of the frame being written

    cdef inline bint is_full(self) noexcept:
        return self.ops.length >= MOST_KEPT
    cdef char *room(self, int64_t bytes) noexcept   # room at the end of the frame; NULL: no memory
    cdef void _submit(self) noexcept
    cdef void _failed(self) noexcept
    cdef void _wrote(self) noexcept
    cdef void _compact(self) noexcept
    cdef void _compacted(self) noexcept
    # Retention removes all segments before this offset, once when_written() has called back.
    cdef int note_removed(self, int64_t first) except -1
    cdef void names_synced(self, int64_t names) noexcept    # the first ones, and the folder's own
    cdef void wrote(self) noexcept                  # from now on data waits for a sync
    cdef void _call_waiting(self) noexcept
    cdef void _call_all(self) noexcept
    cdef void forget(self) noexcept
    cdef void close_file(self) noexcept
