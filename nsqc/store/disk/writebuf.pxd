# Records on their way to a file, laid out as in the file; and where those were before that lay in the files already.
#
# A place ends once its record has been written again. Whoever writes the buffer ends it, or forget_formers().

from libc.stdint cimport int64_t, uint16_t
from nsqc.store.disk.unacked cimport Place, Unacked
from nsqc.store.message cimport Message


cdef struct Former:
    # A record in a buffer that lay elsewhere in the files before: that place is done once this one is written.
    int64_t offset          # of the record in the buffer
    Place *place

cdef struct WriteBuf:
    char *c_data            # owned
    int64_t length, room
    int64_t taken           # bytes at its front that pop() has handed out
    int64_t records         # that were not handed out
    Former *formers         # owned, with their places; in order of offset
    int64_t former_first    # of those that still count
    int64_t former_end, former_room

cdef struct Spare:
    # Memory of a buffer that was written, kept for the next one: growing that again would cost more than filling it.
    char *c_data            # owned; NULL: none
    int64_t room


# Adds a record; borrows the message. former: a place that is done once the record is written, or NULL. -1: no memory,
# and nothing has changed.
cdef int out_append(WriteBuf *out, Message *message, uint16_t attempts, Place *former) noexcept nogil
# The oldest record, its reference the caller's; NULL: no memory. place: that of the same record in the files, or NULL.
cdef Message *out_pop(WriteBuf *out, uint16_t *attempts, Place **place) noexcept nogil
cdef int64_t out_body_bytes(WriteBuf *out) noexcept nogil       # of the records that were not handed out
cdef int64_t count_records(WriteBuf *out, int64_t upto) noexcept nogil  # not handed out, before an offset
# Ends the places of the records that begin before an offset; they are elsewhere now.
cdef void end_formers(WriteBuf *out, Unacked *unacked, int64_t upto) noexcept nogil
cdef void forget_formers(WriteBuf *out, Unacked *unacked) noexcept nogil    # likewise, of all
cdef void out_clear(WriteBuf *out) noexcept nogil   # empties it, keeps a small allocation at most; no place may be left
cdef void out_free(WriteBuf *out) noexcept nogil    # likewise, keeps none
cdef void data_moved() noexcept nogil               # a buffer's data has another owner

cdef void spare_keep(Spare *spare, WriteBuf *out) noexcept nogil    # takes a buffer's memory, within limits
cdef void spare_use(Spare *spare, WriteBuf *out) noexcept nogil     # hands it to a buffer that has none
cdef void spare_free(Spare *spare) noexcept nogil
