# One topic's log: commit, sync, retention, readers that wait.

from libc.stdint cimport int64_t, uint32_t, uint64_t

from nsqc.store.disk.fileio cimport IoPool
from nsqc.store.log.frame cimport Buffer, Delays, Frames
from nsqc.store.log.journal cimport Recorder
from nsqc.store.log.reading cimport OpenFile, ReadFrames, Readers
from nsqc.store.log.segment cimport AppendJob, Index, Manifest, Segments
from nsqc.store.memory cimport Clock
from nsqc.store.message cimport GuidFactory
from nsqc.store.publishids cimport PublishId
from nsqc.store.work cimport Commit, LoopWork, StoreOwner


# ====================================================================== unsynced
# Which segments of a log may not be on disk: those written since the last sync, and those of a killed run.

cdef struct Unsynced:
    int64_t synced          # segments that begin before this offset are on disk
    bint lags               # later ones may not be
    bint rewrite            # a sync failed: rewrite its data before the next one
    int64_t syncing         # value of `synced` once the running sync succeeds: the first offset of the last segment
    bint covers             # all is on disk then
    bint runs               # a sync is running
    bint failed             # meanwhile an append found that the sync's data cannot be synced


# ====================================================================== log
# The log of a topic: records are appended once for all channels, which read it through cursors.
#
# A publish goes to the buffer. The commit writes the buffer to the last segment, and with `fsync` syncs it, before
# acknowledging anything. Only then can records be read: up to next, which never falls. The last write stays in memory
# as the tail, which serves cursors that keep up.

cdef class TopicLog(LoopWork):
    cdef readonly str name              # of the topic
    cdef readonly str folder
    cdef bytes c_folder
    cdef object __weakref__
    cdef IoPool io
    cdef object syncer                  # nsqc.store.disk.manager.Syncer
    cdef object log                     # nsqc.log.Log
    cdef Clock clock
    cdef GuidFactory guids              # of the daemon
    cdef Commit commit
    cdef StoreOwner owner               # the topic; None once it is deleted
    cdef readonly Recorder recorder
    cdef Segments segments
    cdef Manifest manifest              # as last written
    cdef bytes ending                   # of a stop: the manifest, for the last sync to write; None: it stays
    cdef int64_t max_file               # bytes of a segment
    cdef bint syncs                     # records are on disk, not only written, before they are acknowledged

    # Appending.
    cdef Frames frames                  # being filled; owned
    cdef Buffer spare                   # memory for the next frames
    cdef int64_t dedupe_ns, dedupe_ids  # how long ids of publishes are remembered, and how many; 0: none are
    cdef uint64_t[2] id_key             # Manifest.id_key, for the next write
    cdef list summaries                 # of ids, in order: (first offset of the segment, time of the last id, ids)
    cdef int sealing                    # segments that threads are sealing
    cdef AppendJob *writing             # running; NULL: none
    cdef readonly int write_error       # errno of the last write; 0: it succeeded
    cdef readonly int64_t next          # offset after the last readable record
    cdef int64_t shipped_to             # the bucket has all records before this offset
    cdef int64_t wrote_ns               # monotonic: end of the last write
    cdef int fd                         # of the last segment's file; -1: closed
    cdef Index index                    # of the last segment
    cdef int64_t durable_to             # position in the last segment up to which it is durable, as far as is known
    cdef int64_t ready_to               # position up to which its file is prepared for frames, or less
    cdef bint ends                      # the next record begins a segment
    cdef int64_t resume_at              # and at this offset or later
    cdef int64_t lost                   # messages lost with the newest segment, until another one follows
    cdef readonly bint closed

    # Reading.
    cdef OpenFile reading
    cdef Buffer tail                    # frames before next
    cdef int64_t tail_first             # offset of its first record; it ends at next
    cdef int64_t tail_serial            # rises with each new tail
    cdef readonly int64_t visible       # channels read up to here: below next while the topic is paused
    cdef bint held                      # the topic is paused: new records stay hidden
    cdef Delays delays
    cdef public int64_t longest_delay_ns    # upper bound for the delays of an earlier run
    cdef Readers readers                # None until a reader waits
    cdef readonly int64_t damaged       # records found damaged
    cdef list damage                    # (first, end) ranges of offsets that contain them
    cdef public object history          # type: History | None; fetches remote segments; None: there is no bucket
    cdef bint offloading                # files are being replaced by their headers
    cdef public dict losers             # type: dict[str, TopicLog]; of the manager: logs with lost messages, by topic

    # Syncs, for nsqc.store.disk.manager.SyncedQueue.
    cdef Unsynced unsynced_files
    cdef int64_t syncing_to             # the end of the last segment, unsynced_files.syncing, when that sync began
    cdef readonly int64_t unsynced      # records written since the last sync began, by appends without a sync
    cdef bint active

    # Adds a message, or the payload of a checked MPUB, to the next write; -1: no memory, and nothing is added.
    # defer_ms: of each message. c_origin: see frames_add().
    cdef int append(self, int64_t wall_ns, const char *c_body, uint32_t size, uint32_t defer_ms, const char *c_origin,
                    uint32_t origin_size) noexcept
    cdef int append_batch(self, int64_t wall_ns, const char *c_payload, int64_t length, int64_t records,
                          uint32_t defer_ms) noexcept
    # The id of the publish just added; room for it is reserved before.
    cdef int reserve_ids(self, int64_t count) noexcept          # -1: no memory
    cdef void add_id(self, const PublishId *id) noexcept
    # How long ids are remembered, and how many; 0: none from now on.
    cdef void remember(self, int64_t window_ns, int64_t limit, const uint64_t *key) noexcept
    cdef int64_t delay_of(self, int64_t offset) noexcept       # due time of a deferred message; 0: it is not deferred
    cdef int64_t delayed_from(self, int64_t offset) noexcept   # number of deferred messages from an offset on
    cdef int64_t first_offset(self) noexcept
    cdef void read_now(self, ReadFrames *job) noexcept          # reads from the page cache only
    # 1: the frames of a remote segment are on this disk, and stay for a moment. 0: call(why) follows, "" once they are,
    # or why they cannot be fetched. -1: there is no bucket.
    cdef int is_here(self, int64_t index, call) noexcept
    cdef void was_fetched(self, int64_t first) noexcept         # but the file has gone
    # Where a read for an offset begins, in the segment at an index; 0: read the file's index.
    cdef int64_t position_before(self, int64_t index, int64_t offset) noexcept
    cdef void hold(self, int64_t at) noexcept                   # hides all records from an offset on
    cdef void unhold(self) noexcept
    cdef void release_owner(self) noexcept                      # drops its reference to the topic
    cdef int64_t unwritten_records(self) noexcept

    cdef void _rest(self) noexcept
    cdef int _note_end(self) except -1


# Messages that a log has lost: damaged ones, and those in missing files. Each counts once, even if several channels and
# readers find it.
cdef int64_t damage_found(TopicLog log, int64_t first, int64_t end)     # count of newly found ones
cdef void losses_found(TopicLog log)        # enters the log into TopicLog.losers


# ====================================================================== writing
# The write side of a log: the collected records become a job; once written, they can be read.

cdef void write_next(TopicLog log) noexcept         # for a commit: its one_ended() follows
cdef void finish_write(TopicLog log, AppendJob *job) noexcept    # by a thread, or at once; takes the job
