# The write side of a disk queue. The loop fills a buffer; a thread writes it, one at a time.
#
# A record becomes readable once it is written; before that only while writing fails: a full disk can empty.

from libc.stdint cimport int64_t, uint16_t
from nsqc.store.disk.filejobs cimport WriteJob
from nsqc.store.disk.state cimport QueueState
from nsqc.store.message cimport Message

# Starts writing the buffer; False: nothing to write now. partial: on a full disk, keep the records that fit.
cdef bint write_next(QueueState queue, bint partial) noexcept
cdef void finish_write(QueueState queue, WriteJob *job) noexcept    # the job is done; frees it
cdef Message *pop_buffer(QueueState queue, uint16_t *attempts) noexcept     # like DiskQueue.pop(), but from the buffer
cdef int64_t discard_buffers(QueueState queue, int64_t *body_bytes) noexcept    # like DiskQueue.discard()
