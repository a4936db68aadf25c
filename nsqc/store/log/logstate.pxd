# Where the log of a topic stands: what is being written, what can be read, how much of it is durable. writing.pxd
# has functions on this; TopicLog (topiclog.pxd) is what others see of it all.

from libc.stdint cimport int64_t

from nsqc.store.backlog cimport Commit, CommitLog, CommitOwner
from nsqc.store.clock cimport Clock
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


cdef class LogState(CommitLog):
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
    cdef CommitOwner owner              # the topic; None once it is deleted
    cdef readonly Recorder recorder
    cdef Segments segments
    cdef Manifest manifest              # as it was written last
    cdef int64_t max_file               # bytes of a segment
    cdef bint syncs                     # what is acknowledged is on disk, not only written

    # Appending.
    cdef Frames frames                  # being filled; owned
    cdef Buffer spare                   # memory for the next ones
    cdef IdJournal ids                  # of publishes; None: none was remembered since the start
    cdef AppendJob *writing             # under way; NULL: none
    cdef readonly int write_error       # errno of the last write; 0: it succeeded
    cdef readonly int64_t next          # offset after the last record that can be read
    cdef int64_t wrote_ns               # monotonic: when the last write ended
    cdef int fd                         # of the last segment; -1: closed
    cdef Index index                    # of the last segment
    cdef int64_t durable_to             # position in the last segment up to which it is durable, as far as is known
    cdef int64_t ready_to               # position up to which its file is prepared for frames, or less
    cdef bint ends                      # the next record begins a segment
    cdef int64_t resume_at              # it begins there at the least
    cdef int64_t lost                   # messages that are gone with the newest segment, until one follows
    cdef readonly bint closed

    # Reading.
    cdef OpenFile reading
    cdef Buffer tail                    # frames before next
    cdef int64_t tail_first             # offset of the first record in them; they end at next
    cdef int64_t tail_serial            # rises with each tail
    cdef readonly int64_t visible       # channels read up to here: below next while it is held
    cdef bint held                      # what is appended does not become visible: the topic is paused
    cdef Delays delays
    cdef public int64_t longest_delay_ns    # what an earlier run has left waits no longer
    cdef Readers readers                # None until a reader waits
    cdef readonly int64_t damaged       # records that were found damaged
    cdef list damage                    # (first, end) of offsets that they are among
    cdef public dict losers             # of the manager: logs that have lost messages, by topic; None: no manager

    # Syncs, as nsqc.store.disk.syncer.SyncedQueue sees them.
    cdef Unsynced unsynced_files
    cdef int64_t syncing_first, syncing_to  # the last segment, and its end, when the sync under way began
    cdef int64_t unsynced_records       # written since the last sync began
    cdef bint active


# The offset of the next record that is added to the buffer.
cdef inline int64_t next_appended(LogState log) noexcept:
    if log.writing is not NULL:
        return log.writing.offset + log.writing.records + log.frames.records
    return max(log.next, log.resume_at) + log.frames.records

cdef void wake_readers(LogState log) noexcept       # those that wait for records
cdef str file_path(LogState log, int64_t first)     # of a segment

# Messages that a log has lost: damaged ones, and those of files that are gone. Each counts once, however many channels
# and readers come upon it.
cdef int64_t damage_found(LogState log, int64_t first, int64_t end)     # how many of them were not known
cdef void losses_found(LogState log)        # enters it into LogState.losers
cdef void losses_forgotten(LogState log)    # it is deleted
