# The read side of a disk queue. A thread reads and checks one block of whole records at a time; during sequential
# reading it prefetches the next block.

from libc.stdint cimport int64_t
from nsqc.store.disk.filejobs cimport ReadJob
from nsqc.store.disk.state cimport QueueState

cdef enum:
    FIRST_WANT = 16384          # bytes of a queue's first block; each further one is four times as large
    MOST_WANT = 262144

# Whether the block has a record at the read position. If one is coming, on_readable() follows.
cdef bint next_block(QueueState queue) noexcept
# Starts reading records at a position. probes: only to detect damage.
cdef void begin_read(QueueState queue, int64_t number, int64_t at, bint probes) noexcept
cdef void finish_read(QueueState queue, ReadJob *job) noexcept      # the job is done; frees it
