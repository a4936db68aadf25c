# Output of a connection that is still to be sent: bytes, and among them large bodies that stay in their messages.
#
#   bytes      [ head ][ OK, head, small frame ][ head ] . . .
#   bodies             ^body                   ^body    ^body      each behind so many of the bytes
#
# It owns a reference for each body until that is sent.

from libc.stdint cimport uint16_t
from nsqc.store.message cimport Message
from nsqc.wire.framer cimport SendBuf

cdef extern from "<sys/uio.h>":
    struct iovec:
        void *iov_base
        size_t iov_len

cdef struct Body:
    Message *message    # owned
    Py_ssize_t at       # bytes of buf before it, those sent already included

cdef struct Gather:
    SendBuf buf         # owned
    Py_ssize_t buf_at   # of it sent
    Body *bodies        # owned, as their messages; those from first up to end are still to be sent
    int first, end, room
    Py_ssize_t body_at  # sent of the first of them
    Py_ssize_t body_bytes   # of all of them, to be sent

cdef inline Py_ssize_t gather_bytes(const Gather *gather) noexcept nogil:
    return gather.buf.length - gather.buf_at + gather.body_bytes

# A message frame whose body stays where it is; -1: no memory, nothing has changed.
cdef int gather_message(Gather *gather, Message *message, uint16_t attempts) noexcept nogil
# The first bytes to be sent, limit of them at most, in up to room pieces: how many pieces, and bytes in them.
cdef int gather_vector(const Gather *gather, Py_ssize_t limit, iovec *c_pieces, int room,
                       Py_ssize_t *bytes) noexcept nogil
cdef void gather_sent(Gather *gather, Py_ssize_t length) noexcept nogil     # the first length bytes are
cdef void gather_cut(Gather *gather, Py_ssize_t length) noexcept nogil      # drops all behind length bytes
cdef void gather_free(Gather *gather) noexcept nogil                        # all of it
