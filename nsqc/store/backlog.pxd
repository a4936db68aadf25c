# The single queue that a topic or channel sees: memory first, then disk, in order.
#
# A message goes to memory if no message waits on disk and the memory queue has room, otherwise to the disk queue's
# buffer, which the next commit of its topic writes (work.pxd).
#
# A message from disk keeps its place there until it is written to a new place or finished: see Place.

from libc.stdint cimport int64_t, uint32_t
from nsqc.store.disk.queue cimport DiskQueue
from nsqc.store.memory cimport Clock
from nsqc.store.message cimport Entry, Fifo, Message, Place
from nsqc.store.work cimport Commit, StoreOwner

cdef enum PutResult:
    PUT_MEMORY
    PUT_DISK            # in the buffer: counts once the commit succeeds
    PUT_DROPPED         # an ephemeral queue is full, as with nsqd
    # Of publishes with an id; see publishids.pxd.
    PUT_KNOWN           # it was stored before
    PUT_RUNNING         # the commit in progress is storing it, or is not: Commit.wait_running()
    PUT_TAKEN           # another client is publishing it: ask again
    # Refused: the reference stays with the caller.
    PUT_NO_MEMORY       # of the process
    PUT_EXITING         # the topic is gone
    PUT_FULL            # a rule allows no more to wait; only Topic.publish_*()
    PUT_NO_SPACE        # it would need the disk, and too little of that is free: see DiskSpace


cdef inline bint is_refused(int result) noexcept nogil:
    return result >= PUT_NO_MEMORY


cdef class Backlog(StoreOwner):
    cdef Fifo memory
    cdef readonly int64_t max_memory    # capacity of the memory queue, messages
    cdef DiskQueue disk                 # None: ephemeral, nothing is written to disk
    cdef Clock clock
    cdef Commit commit
    cdef readonly bint keeps            # after a failed write: keeps the records (channel) or rolls them back (topic)
    cdef readonly int error             # errno of this backlog's last write; 0: success
    cdef Place *place                   # of the last message returned by pop(); the caller owns it; NULL: none
    cdef StoreOwner owner
    # Delays of messages on disk, which the file format cannot store. In a topic: id to milliseconds, counted from the
    # moment a channel takes the message; in a channel: id to wall-clock nanoseconds.
    cdef readonly dict delays    # type: dict[bytes, int]
    cdef bint delays_are_times

    @staticmethod
    cdef Backlog new(DiskQueue disk, int64_t max_memory, bint keeps, Clock clock, Commit commit, StoreOwner owner)

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
    # When the message that pop() would give was published, and its attempts; 0: it gives none just now, and the same
    # follows.
    cdef int64_t oldest_ns(self, uint32_t *attempts) noexcept
    cdef int64_t bytes(self) noexcept               # of what waits: bodies in memory, records on disk
    cdef void done(self, Place *place) noexcept     # the message is finished
    cdef int64_t depth(self) noexcept               # waiting messages
    cdef int64_t disk_depth(self) noexcept          # waiting messages on disk
    cdef int64_t delayed_on_disk(self) noexcept     # messages on disk with a pending delay
    cdef void attach(self, DiskQueue disk) noexcept     # messages kept in memory for lack of a disk may now go there
    cdef void mark_dirty(self) noexcept
    cdef void _refuse(self) noexcept
    cdef int _put_disk(self, Message *message, uint32_t attempts, uint32_t defer_ms, Place *place) noexcept
    cdef void _apply_delay(self, Entry *entry) noexcept
