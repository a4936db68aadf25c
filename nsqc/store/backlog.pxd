# The one queue that a topic or channel sees: memory first, then disk, in order.
#
# A message goes to memory while nothing waits on disk and the memory queue has room, else to the disk queue's write
# buffer. That buffer is written by commit(), once a turn for all backlogs of the daemon; until then nothing that
# depends on it may be acknowledged.

from libc.stdint cimport int64_t, uint32_t
from nsqc.store.clock cimport Clock
from nsqc.store.diskqueue cimport DiskQueue
from nsqc.store.fifo cimport Entry, Fifo
from nsqc.store.message cimport Message

cdef enum PutResult:
    PUT_MEMORY
    PUT_DISK            # in the write buffer: counts once commit() has succeeded
    PUT_DROPPED         # an ephemeral queue is full, as with the original
    PUT_NO_MEMORY       # of the process; the reference stays with the caller


cdef class CommitSet:
    cdef list dirty             # backlogs with unwritten records
    cdef readonly int64_t serial    # of the commit to come; rises with each
    cdef object watch           # its bad says whether written() wants to be told of a commit without failure
    cdef object after           # callable(failed: int), set by the connection layer; called after each commit

    cdef int commit(self) except -1     # writes all; returns how many backlogs failed
    cdef inline bint is_clean(self) noexcept


cdef class Backlog:
    cdef Fifo memory
    cdef readonly int64_t max_memory    # messages the memory queue may hold
    cdef DiskQueue disk                 # None: ephemeral, nothing goes to disk
    cdef Clock clock
    cdef CommitSet commits
    cdef bint listed                    # in commits.dirty
    cdef readonly bint keeps            # a failed commit keeps the records (channel) or takes them back (topic)
    cdef readonly int error             # errno of the last commit of this backlog; 0: it succeeded
    cdef int64_t taken                  # of the message that pop() has handed out last
    cdef object owner                   # told of trouble: on_write_failed(errno), on_write_healed(), on_read_failed()
    # Delays of messages that lie on disk, where the format has no room for them. Of a topic: id to milliseconds,
    # counted from the moment a channel takes the message; of a channel: id to wall-clock nanoseconds.
    cdef readonly dict delays
    cdef bint delays_are_times

    @staticmethod
    cdef Backlog new(DiskQueue disk, int64_t max_memory, bint keeps, Clock clock, CommitSet commits)

    # Takes the reference unless the result is PUT_NO_MEMORY. forced: a message that was accepted before may not be
    # dropped, whatever the limits say.
    cdef int put(self, Message *message, uint32_t attempts, uint32_t defer_ms, bint forced) noexcept
    # The oldest; its reference goes to the caller. taken: the serial that done() wants when a channel is through with
    # it, which may be when it was put back; 0: it came from memory.
    cdef bint pop(self, Entry *entry) noexcept
    cdef void done(self, int64_t taken) noexcept
    cdef int64_t depth(self) noexcept               # messages waiting
    cdef int64_t disk_depth(self) noexcept          # those of them on disk
    cdef int64_t delayed_on_disk(self) noexcept     # those on disk that have a delay to keep
    cdef int commit(self) except -1                 # 0 or errno
    cdef void mark_dirty(self) noexcept
    cdef int _put_disk(self, Message *message, uint32_t attempts, uint32_t defer_ms) noexcept
    cdef void _apply_delay(self, Entry *entry) noexcept
