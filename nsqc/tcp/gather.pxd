# Unsent output of a connection: bytes, and among them large bodies that stay in their messages.
#
#   bytes      [ head ][ OK, head, small frame ][ head ] . . .
#   bodies             ^body                   ^body    ^body      each after its number of bytes
#
# It owns a reference for each body until the body is sent.

from libc.stdint cimport uint16_t
from nsqc.store.message cimport Message
from nsqc.wire.framer cimport SendBuf

cdef extern from "<sys/uio.h>":
    struct iovec:
        void *iov_base
        size_t iov_len

cdef struct Body:
    Message *message    # owned
    Py_ssize_t at       # bytes of buf before it, including sent ones

cdef struct Gather:
    SendBuf buf         # owned
    Py_ssize_t buf_at   # bytes of it sent
    Body *bodies        # owned, as are their messages; items from first to before end are unsent
    int first, end, room
    Py_ssize_t body_at  # sent bytes of the first of them
    Py_ssize_t body_bytes   # unsent bytes of all of them

cdef inline Py_ssize_t gather_bytes(const Gather *gather) noexcept nogil:
    return gather.buf.length - gather.buf_at + gather.body_bytes

# A message frame whose body stays in place; -1: no memory, nothing has changed.
cdef int gather_message(Gather *gather, Message *message, uint16_t attempts) noexcept nogil
# The first unsent bytes, at most limit, in up to room pieces: the number of pieces, and their bytes.
cdef int gather_vector(const Gather *gather, Py_ssize_t limit, iovec *c_pieces, int room,
                       Py_ssize_t *bytes) noexcept nogil
cdef void gather_sent(Gather *gather, Py_ssize_t length) noexcept nogil     # the first length bytes were sent
cdef void gather_cut(Gather *gather, Py_ssize_t length) noexcept nogil      # drops all output after length bytes
cdef void gather_free(Gather *gather) noexcept nogil                        # all of it
