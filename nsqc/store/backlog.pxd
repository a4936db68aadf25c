# The one queue that a topic or channel sees: memory first, then disk, in order.
#
# A message goes to memory while nothing waits on disk and the memory queue has room, else to the disk queue's buffer.
# What becomes dirty is scheduled at once (mark_dirty) and written in the next loop iteration; nothing else schedules a
# write. The backlogs of a topic and its channels are written together, as a commit; one commit of a topic
# is under way at a time, and what becomes dirty meanwhile is the next one.
#
# A message from disk has a place there until its new place is written, or until it is finished: see Place.

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
    PUT_DISK            # in the buffer: counts once the commit has succeeded
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
    MOST_UNWRITTEN = 8388608    # bytes that a topic and its channels collect while a commit is under way
    MOST_SHARED = 1048576       # bytes with which a commit waits for no more publishers: see Sharing


cdef class BacklogOwner(Sliced):
    # A topic or channel as its backlog sees it.
    cdef void on_write_failed(self, int error, int64_t records, int64_t body_bytes) noexcept    # taken back, if any
    cdef void on_write_healed(self) noexcept
    cdef void on_readable(self) noexcept            # pop() has more to give
    cdef void on_unreadable(self) noexcept


cdef class CommitOwner(BacklogOwner):
    # A topic as its commits see it.
    cdef void on_commit_began(self) noexcept
    cdef void on_commit_ended(self, int error) noexcept
    cdef void on_appended(self, int64_t records) noexcept       # so many more can be read from its log
    cdef void on_idle(self) noexcept                            # its log has not been used for a while


cdef class CommitLog(JobOwner):
    # A topic's log as its commits see it.
    # Commit.one_ended() follows. False: there is no memory for it, and what was to be written is refused.
    cdef bint begin_write(self) noexcept
    cdef int64_t unwritten_records(self) noexcept
    cdef bint shares_syncs(self) noexcept     # each write syncs: it should be for many publishers


cdef class WriteWatch:
    # Watches over writes that fail; nsqc.broker.health implements it.
    cdef public bint failing            # a write has failed and nothing has shown since that writes succeed again
    cpdef object written(self)          # a commit has succeeded; called only while failing


cdef class CommitWaiter(Sliced):
    # Waits for a commit, and must not answer before it has ended.
    cdef void commit_ended(self, Commit commit, int error) noexcept


cdef class CallWaiter(CommitWaiter):
    cdef object call


cdef class Scheduled(JobOwner):
    # What the next loop iteration begins.
    cdef bint listed            # in CommitSchedule.due
    cdef void begin(self) noexcept


cdef class CommitSchedule:
    # What the commits of one daemon share.
    cdef object loop            # None: run() is called by hand
    cdef readonly Slicer slicer
    cdef WriteWatch watch       # None: nobody
    cdef DiskSpace space        # of the disk that is written to
    cdef list due               # Scheduled
    cdef bint scheduled
    cdef bint awaited           # somebody calls run() at the end of this loop iteration

    cdef void add(self, Scheduled work) noexcept
    cpdef run(self)


cdef class Commit(Scheduled):
    # The commits of one topic, one after the other. serial is that of the one being collected.
    cdef CommitSchedule schedule
    cdef CommitOwner owner      # the topic; None once it is deleted
    cdef readonly int64_t serial
    cdef list dirty             # backlogs with records in the buffer that is being filled
    cdef CommitLog log          # the topic's; None: it has none
    cdef list waiters           # of the one being collected
    cdef list under_way         # waiters of the one under way
    cdef int running            # writes under way
    cdef int64_t unwritten      # bytes in the buffers that are being filled
    cdef list blocked           # Sliced: work to continue when the commit under way has ended
    cdef int failed             # errno of the first that failed
    cdef Sharing sharing        # of syncs

    @staticmethod
    cdef Commit new(CommitSchedule schedule, CommitOwner owner)
    cdef void let_go(self) noexcept     # of its owner, and of the log as soon as nothing is under way
    cdef inline bint is_clean(self) noexcept:
        return not self.is_due() and self.running == 0
    cdef inline bint is_due(self) noexcept:
        return len(self.dirty) > 0 or (self.log is not None and self.log.unwritten_records() > 0)
    # Whether more is collected than one write may take: work that fills buffers stops, and is blocked until the commit
    # under way has ended.
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
    cdef readonly int64_t max_memory    # messages the memory queue may hold
    cdef DiskQueue disk                 # None: ephemeral, nothing goes to disk
    cdef Clock clock
    cdef Commit commit
    cdef bint listed                    # in commit.dirty
    cdef readonly bint keeps            # a failed write keeps the records (channel) or takes them back (topic)
    cdef readonly int error             # errno of the last write of this backlog; 0: it succeeded
    cdef Place *place                   # of the message that pop() has returned last; the caller's; NULL: none
    cdef BacklogOwner owner
    # Delays of messages on disk, where the format has no room for them. Of a topic: id to milliseconds,
    # counted from the moment a channel takes the message; of a channel: id to wall-clock nanoseconds.
    cdef readonly dict delays
    cdef bint delays_are_times

    @staticmethod
    cdef Backlog new(DiskQueue disk, int64_t max_memory, bint keeps, Clock clock, Commit commit, BacklogOwner owner)

    # Takes the reference unless the result is PUT_NO_MEMORY. forced: it was accepted before and must not be dropped,
    # whatever the limits say. place: its place on disk in this backlog; then it goes to disk, and this place is done
    # when it is written.
    cdef int put(self, Message *message, uint32_t attempts, uint32_t defer_ms, bint forced, Place *place) noexcept
    # The same, for a message from the disk of another backlog: it goes to disk in any case, if there is one.
    cdef int put_copy(self, Message *message, uint32_t attempts, uint32_t defer_ms) noexcept
    # Whether put() would not write a new message to disk.
    cdef inline bint fits(self, uint32_t defer_ms) noexcept:
        return self.disk is None or (self.memory.count < self.max_memory
                                     and (self.disk.depth == 0 or defer_ms != 0))
    # The oldest; its reference and its place go to the caller. False: there is none for now; if messages wait,
    # on_readable() or on_unreadable() follows.
    cdef bint pop(self, Entry *entry) noexcept
    # When the message that pop() would give was published; 0: it gives none just now, and the same follows.
    cdef int64_t oldest_ns(self) noexcept
    cdef int64_t bytes(self) noexcept               # of what waits: bodies in memory, records on disk
    cdef void done(self, Place *place) noexcept     # the message is finished
    cdef int64_t depth(self) noexcept               # messages waiting
    cdef int64_t disk_depth(self) noexcept          # those of them on disk
    cdef int64_t delayed_on_disk(self) noexcept     # those on disk that have a delay to keep
    cdef void attach(self, DiskQueue disk) noexcept     # what it had to keep in memory may go to disk now
    cdef void mark_dirty(self) noexcept
    cdef void refused(self) noexcept
    cdef int _put_disk(self, Message *message, uint32_t attempts, uint32_t defer_ms, Place *place) noexcept
    cdef void _apply_delay(self, Entry *entry) noexcept
