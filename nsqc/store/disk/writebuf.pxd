# Records on their way to a file, as they will lie there; and for those that lay elsewhere before, where.
#
# A record whose former place is known is written before that place ends: forget_formers() or whoever writes ends it.

from libc.stdint cimport int64_t
from nsqc.store.disk.unacked cimport Place, Unacked


cdef struct Former:
    # A record in a buffer that lay elsewhere in the files before: that place is done once this one is written.
    int64_t offset          # of the record in the buffer
    Place *place

cdef struct OutBuf:
    char *c_data            # owned
    int64_t length, room
    int64_t taken           # bytes at its front that pop() has handed out already
    int64_t records         # in it that were not handed out
    Former *formers         # owned, with their places; rising by offset
    int64_t former_first    # of those that still count
    int64_t former_end, former_room


cdef int out_room(OutBuf *out, int64_t need) noexcept nogil         # for so many more bytes; -1: no memory
cdef int former_room(OutBuf *out, int64_t need) noexcept nogil      # for so many more places; -1: no memory
cdef int64_t count_records(OutBuf *out, int64_t upto) noexcept nogil    # from what was handed out to an offset
cdef void forget_formers(OutBuf *out, Unacked *unacked) noexcept nogil  # places end with the records they were of
cdef void out_clear(OutBuf *out) noexcept nogil     # empty, with a small allocation at most; its places must have ended
cdef void out_free(OutBuf *out) noexcept nogil      # likewise, with none
cdef void data_free(char *c_data) noexcept nogil    # of a buffer, which has let go of it
cdef void data_moved() noexcept nogil               # a buffer's data has another owner
