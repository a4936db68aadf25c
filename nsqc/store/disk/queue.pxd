# A queue of messages in files, in go-diskqueue's format: NAME.diskqueue.NNNNNN.dat, and the positions in
# NAME.diskqueue.meta.dat. state.pxd describes its state, and the order of its records.
#
# An IoPool's threads read and write the files, one read and one write per queue at a time; the loop only copies. A
# block read by a thread consists of whole, checked records. A written buffer becomes the block if the reader has read
# everything before it.

from libc.stdint cimport int64_t, uint16_t, uint32_t
from nsqc.store.disk.state cimport QueueState
from nsqc.store.disk.unacked cimport Place
from nsqc.store.message cimport Message


cdef class DiskQueue(QueueState):
    # Adds a record to the buffer; borrows the message. former: a place of this queue that is done once the record is
    # written, or NULL. -1: no memory, and nothing has changed.
    cdef int append(self, Message *message, uint16_t attempts, Place *former) noexcept
    # Starts writing the buffer; False: nothing to write now. partial: on a full disk, keep the records that fit.
    cdef bint begin_write(self, bint partial) noexcept
    # Drops the buffer being filled; returns its record count. Adds their bytes to body_bytes, which may be NULL.
    cdef int64_t discard(self, int64_t *body_bytes) noexcept
    # The oldest message; the caller gets the reference; NULL: none available now.
    cdef Message *pop(self, uint16_t *attempts) noexcept
    # Publish time of that one, and its attempts; 0: none available now.
    cdef int64_t oldest_ns(self, uint32_t *attempts) noexcept
    cdef void done(self, Place *place) noexcept     # the record is finished; its place on disk may be released
    cdef int64_t done_before(self, int64_t serial) noexcept  # the same for all handed out before; returns their number
    cdef int64_t buffered(self) noexcept            # records that are in no file
    cdef void release_owner(self) noexcept          # the owner holds a reference to this queue
    cdef void drop_out(self) noexcept               # forgets all places, which then belong to their holders

    cdef Message *_take(self, uint16_t *attempts) noexcept
    cdef int _forget_all(self) except -1
