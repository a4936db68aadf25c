# The log of a topic: records appended once, whatever channels there are. Channels read it through cursors (cursor.pxd).
#
# A publish goes to the buffer; the commit writes the buffer to the last segment, and with `fsync` syncs it, before
# anything is acknowledged. Only then the records can be read: up to next, which never falls. What was written last
# stays in memory as the tail, from which cursors that keep up are served.

from libc.stdint cimport int64_t, uint32_t
from nsqc.store.backlog cimport Commit, CommitLog, CommitOwner, CommitSchedule
from nsqc.store.clock cimport Clock
from nsqc.store.disk.pool cimport IoPool
from nsqc.store.log.appends cimport SegmentFiles
from nsqc.store.log.delays cimport Delays
from nsqc.store.log.jobs cimport AppendJob, LogBuf
from nsqc.store.log.readers cimport Readers
from nsqc.store.log.readfiles cimport ReadFiles
from nsqc.store.log.reads cimport ReadRecords
from nsqc.store.log.recorder cimport Journaled, Recorder
from nsqc.store.log.segments cimport Segments
from nsqc.store.log.unsynced cimport Unsynced
from nsqc.store.message cimport Message


cdef class TopicLog(CommitLog):
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

    # Adds a record to the buffer; -1: no memory. more: its batch continues with the next one.
    cdef int append(self, const char *c_id, int64_t wall_ns, const char *c_body, uint32_t size, uint32_t defer_ms,
                    bint more) noexcept
    cdef int append_message(self, Message *message, bint more) noexcept         # borrows it
    # Moves the records from a mark on to a buffer of the caller's, and back: for a batch that is not complete.
    cdef int stage(self, int64_t length, int64_t records, LogBuf *to) noexcept      # -1: no memory
    cdef int unstage(self, LogBuf *batch) noexcept                                  # frees it unless -1: no memory
    cdef void take_back(self, int64_t length, int64_t records) noexcept            # what is behind the mark is dropped
    cdef int64_t delay_of(self, int64_t offset) noexcept       # due time of a deferred message; 0: it is not deferred
    cdef int64_t delayed_from(self, int64_t offset) noexcept   # deferred messages at or behind an offset
    cdef int64_t first_offset(self) noexcept
    cdef void read_now(self, ReadRecords *job) noexcept         # what the page cache has
    cdef void hold(self, int64_t at) noexcept                   # nothing from an offset on is visible
    cdef void unhold(self) noexcept
    cdef void let_go(self) noexcept                             # of its topic
    cdef int64_t appended(self) noexcept                        # the offset of the next record
    cdef void _refuse(self, int error) noexcept
    cdef int _take_pieces(self, AppendJob *job) except -1
    cdef int _sync_if_due(self) except -1
    cdef void _take_tail(self, AppendJob *job) noexcept
    cdef void _wake(self) noexcept
