# A queue of messages in files, in go-diskqueue's format: NAME.diskqueue.NNNNNN.dat, and their positions in
# NAME.diskqueue.meta.dat. Its state, and the order of what waits in it, is described in state.pxd.
#
# Files are read and written by the threads of an IoPool, one read and one write of a queue at a time; the loop only
# copies. A block that was read consists of whole records that the thread has checked. A buffer that was written becomes
# the block if the reader has read everything before it.

from libc.stdint cimport int64_t, uint16_t
from nsqc.store.disk.state cimport QueueState
from nsqc.store.disk.unacked cimport Place
from nsqc.store.message cimport Message


cdef class DiskQueue(QueueState):
    # Adds a record to the buffer; borrows the message. former: a place of this queue that is done once the record is
    # written, or NULL. -1: no memory, and nothing has changed.
    cdef int append(self, Message *message, uint16_t attempts, Place *former) noexcept
    # Begins to write the buffer; False: there is nothing to write just now. partial: on a full disk, keep what fits.
    cdef bint begin_write(self, bint partial) noexcept
    # Drops what is being filled; how many records. Adds their bytes to body_bytes, which may be NULL.
    cdef int64_t discard(self, int64_t *body_bytes) noexcept
    # The oldest, its reference the caller's; NULL: none can be had now.
    cdef Message *pop(self, uint16_t *attempts) noexcept
    cdef int64_t oldest_ns(self) noexcept           # when that one was published; 0: none can be had now
    cdef void done(self, Place *place) noexcept     # with a record; its place on disk may be given up
    cdef int64_t done_before(self, int64_t serial) noexcept     # with all that were handed out before; how many
    cdef int64_t buffered(self) noexcept            # records that are in no file
    cdef void let_go(self) noexcept                 # of its watcher, which holds this queue
    cdef void drop_out(self) noexcept               # nothing is out: places belong to their holders

    cdef Message *_take(self, uint16_t *attempts) noexcept
    cdef int _forget_all(self) except -1
