# The single queue that a topic or channel sees: memory first, then disk, in order.
#
# A message goes to memory if no message waits on disk and the memory queue has room, otherwise to the disk queue's
# buffer. mark_dirty() schedules dirty backlogs at once; they are written in the next loop iteration. Nothing else
# schedules a write. The backlogs of a topic and its channels are written together, as one commit; a topic has one
# commit in progress at a time, and backlogs dirtied meanwhile form the next one.
#
# A message from disk keeps its place there until it is written to a new place or finished: see Place.

from libc.stdint cimport int64_t, uint32_t
from nsqc.store.clock cimport Clock
from nsqc.store.disk.pool cimport JobOwner
from nsqc.store.disk.queue cimport DiskQueue
from nsqc.store.disk.state cimport QueueWatcher
from nsqc.store.fifo cimport Entry, Fifo
from nsqc.store.message cimport Message
from nsqc.store.sharing cimport Sharing
from nsqc.store.slices cimport Sliced, Slicer
from nsqc.store.space cimport DiskSpace
from nsqc.store.disk.unacked cimport Place

cdef enum PutResult:
    PUT_MEMORY
    PUT_DISK            # in the buffer: counts once the commit succeeds
    PUT_DROPPED         # an ephemeral queue is full, as with nsqd
    # Of publishes with an id; see publishids.pxd.
    PUT_KNOWN           # it was stored before
    PUT_RUNNING         # the commit under way is storing it, or is not: Commit.wait_running()
    PUT_TAKEN           # another client is publishing it: ask again
    # Refused: the reference stays with the caller.
    PUT_NO_MEMORY       # of the process
    PUT_EXITING         # the topic is gone
    PUT_FULL            # a rule allows no more to wait; only Topic.publish_*()
    PUT_NO_SPACE        # it would need the disk, and too little of that is free: see DiskSpace


cdef inline bint is_refused(int result) noexcept nogil:
    return result >= PUT_NO_MEMORY


cdef enum:
    MOST_UNWRITTEN = 8388608    # bytes that a topic and its channels may buffer during a commit
    MOST_SHARED = 1048576       # buffered bytes at which a commit stops waiting for more publishers: see Sharing


cdef class BacklogOwner(Sliced):
    # A topic or channel, as seen by its backlog.
    cdef void on_write_failed(self, int error, int64_t records, int64_t body_bytes) noexcept    # rolled back, if any
    cdef void on_write_healed(self) noexcept
    cdef void on_readable(self) noexcept            # pop() has more messages
    cdef void on_unreadable(self) noexcept


cdef class CommitOwner(BacklogOwner):
    # A topic, as seen by its commits.
    cdef void on_commit_began(self) noexcept
    cdef void on_commit_ended(self, int error) noexcept
    cdef void on_appended(self, int64_t records) noexcept       # its log has this many more readable records
    cdef void on_idle(self) noexcept                            # its log has been idle for a while


cdef class CommitLog(JobOwner):
    # A topic's log, as seen by its commits.
    # Commit.one_ended() follows. False: out of memory, the write is refused.
    cdef bint begin_write(self) noexcept
    cdef int64_t unwritten_records(self) noexcept
    cdef bint shares_syncs(self) noexcept     # each write syncs, so it should serve many publishers


cdef class WriteWatch:
    # Watches for failing writes; implemented by nsqc.broker.health.
    cdef public bint failing            # a write has failed and none has succeeded since
    cpdef object written(self)          # a commit has succeeded; called only while failing


cdef class CommitWaiter(Sliced):
    # Waits for a commit, and must not answer before it ends.
    cdef void commit_ended(self, Commit commit, int error) noexcept


cdef class CallWaiter(CommitWaiter):
    cdef object call


cdef class Scheduled(JobOwner):
    # Work that starts in the next loop iteration.
    cdef bint listed            # in CommitSchedule.due
    cdef void begin(self) noexcept


cdef class CommitSchedule:
    # Shared by all commits of one daemon.
    cdef object loop            # None: run() is called manually
    cdef readonly Slicer slicer
    cdef WriteWatch watch       # None: not watched
    cdef DiskSpace space        # of the disk being written to
    cdef list due               # Scheduled
    cdef bint scheduled
    cdef bint awaited           # a caller runs run() at the end of this loop iteration

    cdef void add(self, Scheduled work) noexcept
    cpdef run(self)


cdef class Commit(Scheduled):
    # The commits of one topic, one after another. serial is that of the commit being collected.
    cdef CommitSchedule schedule
    cdef CommitOwner owner      # the topic; None once deleted
    cdef readonly int64_t serial
    cdef list dirty             # backlogs with records in the buffer being filled
    cdef CommitLog log          # the topic's log; None: not log-backed
    cdef list waiters           # of the commit being collected
    cdef list under_way         # waiters of the commit in progress
    cdef int running            # writes in progress
    cdef int64_t unwritten      # bytes in the buffers being filled
    cdef list blocked           # Sliced: work to resume after the commit in progress
    cdef int failed             # errno of the first failed write
    cdef Sharing sharing        # of syncs

    @staticmethod
    cdef Commit new(CommitSchedule schedule, CommitOwner owner)
    cdef void let_go(self) noexcept     # drops the owner, and the log as soon as no write is in progress
    cdef inline bint is_clean(self) noexcept:
        return not self.is_due() and self.running == 0
    cdef inline bint is_due(self) noexcept:
        return len(self.dirty) > 0 or (self.log is not None and self.log.unwritten_records() > 0)
    # Whether more is buffered than one write may take: work that fills buffers stops, and resumes after the commit in
    # progress.
    cdef inline bint is_full(self) noexcept:
        return self.unwritten >= MOST_UNWRITTEN and self.running > 0
    cdef void block(self, Sliced work) noexcept
    cdef void wait(self, CommitWaiter waiter) noexcept      # for the one being collected
    cdef void wait_running(self, CommitWaiter waiter) noexcept      # for the one under way: there is one
    cdef void one_ended(self, int error) noexcept
    cdef bint _waits(self) noexcept
    cdef void _end(self) noexcept


cdef class Backlog(QueueWatcher):
    cdef Fifo memory
    cdef readonly int64_t max_memory    # capacity of the memory queue, messages
    cdef DiskQueue disk                 # None: ephemeral, nothing is written to disk
    cdef Clock clock
    cdef Commit commit
    cdef bint listed                    # in commit.dirty
    cdef readonly bint keeps            # after a failed write: keeps the records (channel) or rolls them back (topic)
    cdef readonly int error             # errno of this backlog's last write; 0: success
    cdef Place *place                   # of the last message returned by pop(); the caller owns it; NULL: none
    cdef BacklogOwner owner
    # Delays of messages on disk, which the file format cannot store. In a topic: id to milliseconds, counted from the
    # moment a channel takes the message; in a channel: id to wall-clock nanoseconds.
    cdef readonly dict delays
    cdef bint delays_are_times

    @staticmethod
    cdef Backlog new(DiskQueue disk, int64_t max_memory, bint keeps, Clock clock, Commit commit, BacklogOwner owner)

    # Takes the reference unless the result is PUT_NO_MEMORY. forced: the message was accepted earlier and must not be
    # dropped, regardless of limits. place: its place on disk in this backlog; the message is then written to disk
    # again, and this place is done once it is written.
    cdef int put(self, Message *message, uint32_t attempts, uint32_t defer_ms, bint forced, Place *place) noexcept
    # The same, for a message from another backlog's disk: it goes to disk, unless this backlog has none.
    cdef int put_copy(self, Message *message, uint32_t attempts, uint32_t defer_ms) noexcept
    # Whether put() would keep a new message off the disk.
    cdef inline bint fits(self, uint32_t defer_ms) noexcept:
        return self.disk is None or (self.memory.count < self.max_memory
                                     and (self.disk.depth == 0 or defer_ms != 0))
    # Takes the oldest message; the caller gets its reference and its place. False: none for now; if messages wait,
    # on_readable() or on_unreadable() follows.
    cdef bint pop(self, Entry *entry) noexcept
    # When the message that pop() would give was published; 0: it gives none just now, and the same follows.
    cdef int64_t oldest_ns(self) noexcept
    cdef int64_t bytes(self) noexcept               # of what waits: bodies in memory, records on disk
    cdef void done(self, Place *place) noexcept     # the message is finished
    cdef int64_t depth(self) noexcept               # waiting messages
    cdef int64_t disk_depth(self) noexcept          # waiting messages on disk
    cdef int64_t delayed_on_disk(self) noexcept     # messages on disk with a pending delay
    cdef void attach(self, DiskQueue disk) noexcept     # messages kept in memory for lack of a disk may now go there
    cdef void mark_dirty(self) noexcept
    cdef void refused(self) noexcept
    cdef int _put_disk(self, Message *message, uint32_t attempts, uint32_t defer_ms, Place *place) noexcept
    cdef void _apply_delay(self, Entry *entry) noexcept
