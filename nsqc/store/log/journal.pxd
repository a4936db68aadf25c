# The journal of cursors: operations, its state, its files, and the recorder that writes it.

from libc.stdint cimport int64_t, uint16_t, uint32_t
from libc.string cimport memcpy, memset

from nsqc.store.disk.fileio cimport IoPool, Job
from nsqc.store.log.frame cimport FRAME_HEAD, MOST_OFFSET, RECORD_SIZE, Buffer
from nsqc.store.log.positions cimport OffsetSet
from nsqc.store.work cimport CommitSchedule, LoopWork
from nsqc.wire.const cimport MAX_NAME_BYTES
from nsqc.wire.hton cimport load_i32, load_i64, load_u16, store_i32, store_i64, store_u16


# ====================================================================== ops
# Operations of channels, as stored in journals: see docs/ondisk.md. Header only.

cdef enum:
    OP_ADVANCE = 1          # offset: the cursor rises to it
    OP_FIN = 2              # offset, end: finished
    OP_REQ = 3              # offset, attempts, due: waits again
    OP_RESET = 4            # offset: the cursor; nothing is unfinished
    OP_NAME = 5             # the channel's
    OP_DROP = 6             # the channel is deleted
    OP_SKIP = 7             # offset, end: finished, though ahead of the cursor
    OP_BYTES = 24
    OP_END_AT = 16          # where the end of OP_FIN lies
    NAME_ROOM = 72
    TOPIC_NUMBER = 0
    MOST_NUMBER = 0x7FFFFFFF    # of a channel: the next ones are counted up from it

cdef struct Op:
    int kind, name_bytes
    uint32_t number, attempts
    int64_t offset, value
    const char *c_name


cdef inline int64_t op_length(int kind) noexcept nogil:
    return OP_BYTES + NAME_ROOM if kind == OP_NAME else OP_BYTES


cdef inline void op_store(char *c_to, const Op *op) noexcept nogil:     # op_length() bytes
    c_to[0] = <char> op.kind
    c_to[1] = <char> op.name_bytes
    store_u16(c_to + 2, <uint16_t> min(op.attempts, <uint32_t> 65535))
    store_i32(c_to + 4, <int> op.number)
    store_i64(c_to + 8, op.offset)
    store_i64(c_to + OP_END_AT, op.value)
    if op.kind == OP_NAME:
        memset(c_to + OP_BYTES, 0, NAME_ROOM)
        memcpy(c_to + OP_BYTES, op.c_name, <size_t> op.name_bytes)


cdef inline bint op_load(const char *c_from, int64_t have, Op *op) noexcept nogil:
    # False: this is not an operation, or its numbers are impossible: a file may come from anyone.
    if have < OP_BYTES or have < op_length(c_from[0]):
        return False
    op.kind = c_from[0]
    op.name_bytes = c_from[1]
    op.attempts = load_u16(c_from + 2)
    op.number = <uint32_t> load_i32(c_from + 4)
    op.offset = load_i64(c_from + 8)
    op.value = load_i64(c_from + OP_END_AT)
    op.c_name = c_from + OP_BYTES
    if op.number > MOST_NUMBER:
        return False
    if op.kind == OP_NAME:
        return 0 < op.name_bytes <= MAX_NAME_BYTES
    if op.kind == OP_FIN or op.kind == OP_SKIP:
        return 0 <= op.offset < op.value < MOST_OFFSET
    return OP_ADVANCE <= op.kind <= OP_DROP and 0 <= op.offset < MOST_OFFSET


# ====================================================================== journal
# The state of a log topic's channels, built from operations. All C; may run on any thread. A state has one
# owner.
#
# Lost operations cause redeliveries, never lost messages: only offsets read as finished are finished. The exception is
# a lost OP_RESET to an earlier offset (a seek back), so writers write frames with OP_RESET or OP_NAME twice.

cdef struct ChannelState:
    uint32_t number             # TOPIC_NUMBER: its cursor is the first offset hidden from channels
    int name_bytes              # 0: the name is lost to damage; or this is the topic
    char[MAX_NAME_BYTES + 1] name
    int64_t cursor              # next offset never delivered
    OffsetSet out               # below the cursor: unfinished
    OffsetSet skips             # at or ahead of the cursor: skipped at delivery

cdef struct JournalState:
    ChannelState **channels     # owned, by number
    int64_t count, room
    uint32_t *by_name           # owned: numbers of channels, hashed by name; 0: free. Some are outdated
    int64_t name_count, name_room
    int64_t at                  # number of the last applied frame
    int64_t damaged             # places with lost frames, and invalid operations


cdef void state_free(JournalState *state) noexcept nogil            # resets it to all zeros, as at the start
# Applies the operations of a frame, up to the first invalid one. 0 or ENOMEM.
cdef ChannelState *state_channel(const JournalState *state, uint32_t number) noexcept nogil     # NULL: none


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
