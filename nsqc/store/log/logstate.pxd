# The state of a topic's log: what is being written, what is readable and how much is durable. writing.pxd has functions
# on it; TopicLog (topiclog.pxd) is the public interface.

from libc.stdint cimport int64_t

from nsqc.store.clock cimport Clock
from nsqc.store.commit cimport Commit
from nsqc.store.disk.pool cimport IoPool
from nsqc.store.guid cimport GuidFactory
from nsqc.store.log.append cimport AppendJob
from nsqc.store.log.buffer cimport Buffer
from nsqc.store.log.delays cimport Delays
from nsqc.store.log.frames cimport Frames
from nsqc.store.log.idjournal cimport IdJournal
from nsqc.store.log.index cimport Index
from nsqc.store.log.manifest cimport Manifest
from nsqc.store.log.read cimport OpenFile
from nsqc.store.log.readers cimport Readers
from nsqc.store.log.recorder cimport Recorder
from nsqc.store.log.segments cimport Segments
from nsqc.store.log.unsynced cimport Unsynced
from nsqc.store.seams cimport LoopWork, StoreOwner


cdef class LogState(LoopWork):
    cdef readonly object name           # of the topic
    cdef readonly object folder
    cdef bytes c_folder
    cdef object __weakref__
    cdef IoPool io
    cdef object syncer                  # nsqc.store.disk.syncer.Syncer
    cdef object log                     # nsqc.log.Log
    cdef Clock clock
    cdef GuidFactory guids              # of the daemon
    cdef Commit commit
    cdef StoreOwner owner               # the topic; None once it is deleted
    cdef readonly Recorder recorder
    cdef Segments segments
    cdef Manifest manifest              # as last written
    cdef int64_t max_file               # bytes of a segment
    cdef bint syncs                     # records are on disk, not only written, before they are acknowledged

    # Appending.
    cdef Frames frames                  # being filled; owned
    cdef Buffer spare                   # memory for the next frames
    cdef IdJournal ids                  # of publishes; None: none remembered since the start
    cdef AppendJob *writing             # running; NULL: none
    cdef readonly int write_error       # errno of the last write; 0: it succeeded
    cdef readonly int64_t next          # offset after the last readable record
    cdef int64_t wrote_ns               # monotonic: end of the last write
    cdef int fd                         # up to which the last segment is known to be durable
    cdef Index index                    # up to which its file is prepared for frames, or less
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
    cdef public dict losers             # the manager's logs with lost messages, by topic; None: no manager

    # Syncs, for nsqc.store.disk.syncer.SyncedQueue.
    cdef Unsynced unsynced_files
    cdef int64_t syncing_first, syncing_to  # the last segment, and its end, when the running sync began
    cdef int64_t unsynced_records       # written since the last sync began
    cdef bint active


# The offset of the next record added to the buffer.
cdef inline int64_t next_appended(LogState log) noexcept:
    if log.writing is not NULL:
        return log.writing.offset + log.writing.records + log.frames.records
    return max(log.next, log.resume_at) + log.frames.records

cdef void wake_readers(LogState log) noexcept       # waiting for records
cdef str file_path(LogState log, int64_t first)     # of a segment

# Messages that a log has lost: damaged ones, and those in missing files. Each counts once, even if several channels and
# readers find it.
cdef int64_t damage_found(LogState log, int64_t first, int64_t end)     # count of newly found ones
cdef void losses_found(LogState log)        # enters the log into LogState.losers
cdef void losses_forgotten(LogState log)    # the log was deleted
