# Where the log of a topic stands: what is being written, what can be read, how much of it is durable. writing.pxd,
# retention.pxd and syncing.pxd are functions on this; TopicLog (topiclog.pxd) is what others see of it all.

from libc.stdint cimport int64_t
from nsqc.store.backlog cimport Commit, CommitLog, CommitOwner
from nsqc.store.clock cimport Clock
from nsqc.store.disk.pool cimport IoPool
from nsqc.store.log.appends cimport SegmentFiles
from nsqc.store.log.delays cimport Delays
from nsqc.store.log.jobs cimport AppendJob, LogBuf
from nsqc.store.log.readers cimport Readers
from nsqc.store.log.readfiles cimport ReadFiles
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
    cdef Commit commit
    cdef CommitOwner owner              # the topic; None once it is deleted
    cdef readonly Recorder recorder
    cdef Segments segments
    cdef int64_t max_file               # bytes of a segment
    cdef bint syncs                     # what is acknowledged is on disk, not only written

    # Appending.
    cdef LogBuf out                     # being filled; owned, like the following
    cdef LogBuf due                     # due times of records in out
    cdef LogBuf spare                   # memory for the next out
    cdef AppendJob *writing             # under way; NULL: none
    cdef AppendJob *ending              # one whose index entries were put off; owned; NULL: none
    cdef readonly int write_error       # errno of the last write; 0: it succeeded
    cdef readonly int64_t next          # offset behind the last record that can be read
    cdef int64_t wrote_ns               # monotonic: when the last write ended
    cdef SegmentFiles files
    cdef bint ends                      # the next record begins a segment
    cdef int64_t resume_at              # it begins there at the least
    cdef int64_t left_end               # as in AppendJob
    cdef readonly bint closed

    # Reading.
    cdef ReadFiles reading
    cdef LogBuf tail                    # records before next
    cdef int64_t tail_first             # offset of the first of them; they end at next
    cdef int64_t tail_serial            # rises with each tail
    cdef readonly int64_t visible       # channels read up to here: below next while it is held
    cdef bint held                      # what is appended does not become visible: the topic is paused
    cdef Delays delays
    cdef public int64_t longest_delay_ns    # what an earlier run has left waits no longer
    cdef Readers readers                # None: nobody has waited yet
    cdef public int64_t damaged         # records that were found damaged

    # Syncs, as nsqc.store.disk.syncer.SyncedQueue sees them.
    cdef Unsynced unsynced_files
    cdef int64_t unsynced_records       # written since the last sync began
    cdef bint active


# The offset of the next record that is added to the buffer.
cdef inline int64_t next_appended(LogState log) noexcept:
    if log.writing is not NULL:
        return log.writing.offset + log.writing.out.records + log.out.records
    return max(log.next, log.resume_at) + log.out.records

cdef void wake_readers(LogState log) noexcept       # those that wait for records
cdef str file_path(LogState log, int64_t first, str kind)       # of a segment; kind: dat, idx or due
