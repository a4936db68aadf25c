# The write side of a disk queue. The loop fills a buffer; a thread writes it, one at a time.
#
# A record can be read once it is written; before that only while writing fails: a full disk can empty.

from libc.stdint cimport int64_t, uint16_t
from nsqc.store.disk.filejobs cimport WriteJob
from nsqc.store.disk.state cimport QueueState
from nsqc.store.message cimport Message

# Begins to write the buffer; False: there is nothing to write just now. partial: on a full disk, keep what fits.
cdef bint write_next(QueueState queue, bint partial) noexcept
cdef void finish_write(QueueState queue, WriteJob *job) noexcept    # the job is done; frees it
cdef Message *pop_buffer(QueueState queue, uint16_t *attempts) noexcept     # as DiskQueue.pop(), but from the buffer
cdef int64_t discard_buffers(QueueState queue, int64_t *body_bytes) noexcept    # as DiskQueue.discard()
