# A channel's place in the log of its topic: what it was never given (from next on), what waits to be delivered again,
# and what waits for its time. What is in flight is the channel's. All of it is in the journal; bodies are only in the
# log.
#
# Everything before next that is not in flight, requeued or deferred is finished.

from libc.stdint cimport int64_t, uint32_t
from nsqc.store.backlog cimport BacklogOwner
from nsqc.store.fifo cimport Entry
from nsqc.store.log.offsets cimport OffsetSet
from nsqc.store.log.read cimport Reader, Spot
from nsqc.store.log.recorder cimport Journaled
from nsqc.store.log.topiclog cimport TopicLog
from nsqc.store.log.uses cimport Uses
from nsqc.store.log.waiting cimport DeferredHeap, RequeuedFifo


cdef class Cursor(Journaled):
    cdef TopicLog log
    cdef readonly bytes name
    cdef BacklogOwner owner         # the channel; None once it is deleted
    cdef readonly int64_t next      # the first offset that was never handed out
    cdef int64_t journaled          # next, as the journal has it
    cdef int64_t offset             # of the message that pop() has returned last
    cdef RequeuedFifo requeued
    cdef DeferredHeap deferred
    cdef OffsetSet skips            # ahead of next: finished
    cdef bint loses                 # retention has removed messages that were in flight, requeued or deferred
    cdef int64_t forgotten          # deferred ones before this offset are gone, or are being taken away
    cdef int64_t forgetting         # how many are left to be looked at for that
    cdef Uses uses
    cdef Reader ahead               # reads on from next
    cdef Reader again               # reads requeued messages
    cdef Spot tail                  # where a record is in the log's tail
    cdef int64_t tail_serial        # of which
    cdef readonly int read_error    # errno while the log cannot be read

    # The next message; its reference and its offset go to the caller. False: there is none for now; if any waits,
    # on_readable() or on_unreadable() of the owner follows.
    cdef bint pop(self, Entry *entry) noexcept
    # The same for the oldest, if it was published no later than before_ns. False: oldest_ns is when it was published,
    # as far as that is known now, else NEVER.
    cdef bint pop_before(self, Entry *entry, int64_t before_ns, int64_t *oldest_ns) noexcept
    cdef void done(self, int64_t offset) noexcept               # a message handed out is finished
    # A message handed out waits again: after those that wait now, or until a monotonic time. -1: no memory.
    cdef int put_back(self, int64_t offset, uint32_t attempts) noexcept
    cdef int defer(self, int64_t offset, uint32_t attempts, int64_t due_ns) noexcept
    cdef void came_back(self, int64_t offset, uint32_t attempts) noexcept   # and goes out again at once
    cdef bint expire(self, int64_t now_ns, int most) noexcept   # requeues what is due; False: more than most are
    # Drops some of the requeued and deferred messages that retention has removed. True: there may be more.
    cdef bint forget_removed(self) noexcept
    cdef int64_t next_due(self) noexcept                        # monotonic; 0: nothing is deferred
    cdef void reset(self, int64_t next) noexcept                # nothing is unfinished; it continues there
    cdef void skip(self, int64_t first, int64_t end) noexcept   # these are finished
    cdef bint is_drained(self) noexcept                         # pop() would find nothing, now or later
    cdef int64_t depth(self) noexcept                           # messages that wait
    cdef int64_t deferred_count(self) noexcept
    cdef int64_t least_waiting(self) noexcept                   # the least offset that waits; next if none does
    cdef void release(self) noexcept                            # memory that it does not need while it is idle
    cdef void drop(self) noexcept                               # the channel is deleted
    cdef void let_go(self) noexcept                             # of the channel

    cdef int _take_next(self, Entry *entry, Spot *spot, const char *c_record) noexcept
    cdef bint _pop_requeued(self, Entry *entry) noexcept
    cdef int _find_requeued(self, int64_t offset) noexcept
    cdef const char *_next_record(self, Spot **spot) noexcept
    cdef const char *_tail_record(self) noexcept
    cdef bint _read(self, Reader *reader, int64_t offset, int64_t want) noexcept
    cdef bint _was_read(self, Reader *reader) noexcept
    cdef void _step_over(self, int64_t next) noexcept
    cdef bint _is_gone(self, int64_t offset) noexcept
    cdef void _lost(self, int64_t first, int64_t count) noexcept
    cdef void _advance(self, int64_t next) noexcept
