# The read side of a disk queue. A thread reads a block of whole records and checks them, one block at a time, and when
# the files are being read through, the next block ahead of its time.

from libc.stdint cimport int64_t
from nsqc.store.disk.filejobs cimport ReadJob
from nsqc.store.disk.state cimport QueueState

cdef enum:
    FIRST_WANT = 16384          # bytes of the first block of a queue; each further one is four times as large
    MOST_WANT = 262144

# Whether the block has a record at the read position. If it will, on_readable() follows.
cdef bint next_block(QueueState queue) noexcept
# Begins to read records at a position. probes: only to find out whether there is damage.
cdef void begin_read(QueueState queue, int64_t number, int64_t at, bint probes) noexcept
cdef void finish_read(QueueState queue, ReadJob *job) noexcept      # the job is done; frees it
