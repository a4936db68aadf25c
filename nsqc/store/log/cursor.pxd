# A channel's position in a log, and those of earlier logs.

from libc.stdint cimport int64_t, uint32_t

from nsqc.store.log.journal cimport FoundFiles, Journaled
from nsqc.store.log.positions cimport DeferredHeap, JournalState, OffsetSet, RequeuedFifo, Uses
from nsqc.store.log.reading cimport Reader, Spot
from nsqc.store.log.topiclog cimport TopicLog
from nsqc.store.message cimport Entry
from nsqc.store.work cimport StoreOwner


# ====================================================================== cursor
# A channel's position in the log of its topic: undelivered messages (from next on), requeued and deferred ones. The
# channel keeps those in flight. The journal records all of it; only the log has the bodies.
#
# Every offset below next that is not in flight, requeued or deferred is finished.

cdef class Cursor(Journaled):
    cdef TopicLog log
    cdef readonly bytes name
    cdef StoreOwner owner         # the channel; None once it is deleted
    cdef readonly int64_t next      # the first offset that was never delivered
    cdef int64_t journaled          # next, as recorded in the journal
    cdef int64_t offset             # of the message pop() returned last
    cdef RequeuedFifo requeued
    cdef DeferredHeap deferred
    cdef OffsetSet skips            # finished offsets ahead of next
    cdef bint loses                 # retention has removed messages that were in flight, requeued or deferred
    cdef int64_t forgotten          # deferred messages before this offset are gone, or being removed
    cdef int64_t forgetting         # how many are still to be checked for that
    cdef Uses uses
    cdef Reader ahead               # reads ahead from next
    cdef Reader again               # reads requeued messages
    cdef Spot tail                  # position of a record in the log's tail
    cdef int64_t tail_serial        # serial of that tail
    cdef readonly int read_error    # errno while the log is unreadable

    # The next message; its reference and its offset go to the caller. False: none for now; if any waits, the owner's
    # on_readable() or on_unreadable() follows.
    cdef bint pop(self, Entry *entry) noexcept
    # The same for the oldest, if it was published no later than before_ns. False: oldest_ns is its publish time if
    # known now, else NEVER.
    cdef bint pop_before(self, Entry *entry, int64_t before_ns, int64_t *oldest_ns) noexcept
    # The same for a requeued message with this number of attempts, which goes before all others. False: none now.
    cdef bint pop_exhausted(self, Entry *entry, uint32_t attempts) noexcept
    cdef void exhausted_first(self, uint32_t attempts) noexcept     # after a start: has it find all of them
    cdef void done(self, int64_t offset) noexcept               # a delivered message is finished
    # Queues a delivered message again: after the waiting ones, or until a monotonic time. -1: no memory.
    cdef int put_back(self, int64_t offset, uint32_t attempts) noexcept
    cdef int defer(self, int64_t offset, uint32_t attempts, int64_t due_ns) noexcept
    cdef void came_back(self, int64_t offset, uint32_t attempts) noexcept   # and is redelivered at once
    cdef bint expire(self, int64_t now_ns, int most) noexcept   # requeues due messages; False: more than `most` are due
    # Drops some of the requeued and deferred messages that retention has removed. True: there may be more.
    cdef bint forget_removed(self) noexcept
    cdef int64_t next_due(self) noexcept                        # monotonic; 0: nothing is deferred
    cdef void reset(self, int64_t next) noexcept                # nothing is unfinished; continues at `next`
    cdef void skip(self, int64_t first, int64_t end) noexcept   # marks these finished
    cdef bint is_drained(self) noexcept                         # pop() would find nothing, now or later
    cdef int64_t depth(self) noexcept                           # waiting messages
    cdef int64_t deferred_count(self) noexcept
    cdef int64_t least_waiting(self) noexcept                   # the lowest waiting offset; next if none waits
    cdef int64_t needed_from(self) noexcept                     # earlier offsets are not needed
    cdef void release(self) noexcept                            # frees memory that an idle cursor does not need
    cdef void drop(self) noexcept                               # the channel was deleted
    cdef void release_owner(self) noexcept                      # drops its reference to the channel

    cdef int _take_next(self, Entry *entry, Spot *spot, const char *c_record) noexcept
    cdef bint _pop_requeued(self, Entry *entry) noexcept
    cdef int _find_requeued(self, int64_t offset) noexcept
    cdef const char *_next_record(self, Spot **spot) noexcept
    cdef const char *_tail_record(self) noexcept
    cdef bint _read(self, Reader *reader, int64_t offset, int64_t want) noexcept
    cdef bint _has_fetched(self, Reader *reader, int64_t index, int64_t offset) noexcept
    cdef void _unreadable(self, int error, str why, int64_t offset) noexcept
    cdef bint _is_remote(self, int64_t offset) noexcept
    cdef bint _was_read(self, Reader *reader) noexcept
    cdef void _step_over(self, int64_t next) noexcept
    cdef bint _is_gone(self, int64_t offset) noexcept
    cdef void _lost(self, int64_t first, int64_t count) noexcept
    cdef void _advance(self, int64_t next) noexcept


# ====================================================================== earlier
# The journal of an earlier run, until the channels have restored their state from it.

cdef class Earlier:
    cdef JournalState state         # owned
    cdef dict numbers               # name of a channel: its number
    cdef readonly int64_t removed_to    # retention has removed all segments before this offset; 0: none
    cdef readonly tuple journal    # type: tuple[list[int], int, int, int, int, int, int, int, bool]; for a Recorder
    cdef readonly list files    # type: list[tuple[int, bool]]; number, and whether part of it was unreadable
    cdef readonly int64_t damaged   # number of unreadable places
    cdef readonly int64_t torn_bytes    # of an incomplete frame at the end of a file, as after a kill

    # The cursor of a channel as it was; None: the journal does not have it.
    cdef Cursor cursor(self, TopicLog log, bytes name, StoreOwner owner)


cdef class TopicPlace(Journaled):
    # The topic's own place in its log: the first offset that is not for the channels.
    cdef readonly int64_t next

    cdef void move(self, int64_t next) noexcept


# From what was read of a folder: takes the state.
cdef Earlier make_earlier(JournalState *state, const FoundFiles *files)
cdef Cursor new_cursor(TopicLog log, bytes name, StoreOwner owner, bint ephemeral, int64_t start)
