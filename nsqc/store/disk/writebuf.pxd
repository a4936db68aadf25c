# Records to be written to a file, in the file's layout; and the former places of those that were in files before.
#
# A place ends once its record has been rewritten. The writer of the buffer ends it, or forget_formers() does.

from libc.stdint cimport int64_t, uint16_t
from nsqc.store.disk.unacked cimport Place, Unacked
from nsqc.store.message cimport Message


cdef struct Former:
    # A record in a buffer that was in the files before: its former place is done once this one is written.
    int64_t offset          # of the record in the buffer
    Place *place

cdef struct WriteBuf:
    char *c_data            # owned
    int64_t length, room
    int64_t taken           # bytes at its front that pop() has consumed
    int64_t records         # unconsumed records
    Former *formers         # owned, with their places; in order of offset
    int64_t former_first    # first one still valid
    int64_t former_end, former_room

cdef struct Spare:
    # Memory of a written buffer, kept for the next one: growing it again would cost more than filling it.
    char *c_data            # owned; NULL: none
    int64_t room


# Adds a record; borrows the message. former: a place that is done once the record is written, or NULL. -1: no memory,
# and nothing has changed.
cdef int out_append(WriteBuf *out, Message *message, uint16_t attempts, Place *former) noexcept nogil
# The oldest record; the caller gets the reference; NULL: no memory. place: of the same record in the files, or NULL.
cdef Message *out_pop(WriteBuf *out, uint16_t *attempts, Place **place) noexcept nogil
cdef int64_t out_body_bytes(WriteBuf *out) noexcept nogil       # of the unconsumed records
cdef int64_t count_records(WriteBuf *out, int64_t upto) noexcept nogil  # unconsumed ones before an offset
# Ends the places of records before an offset; they are elsewhere now.
cdef void end_formers(WriteBuf *out, Unacked *unacked, int64_t upto) noexcept nogil
cdef void forget_formers(WriteBuf *out, Unacked *unacked) noexcept nogil    # the same for all
cdef void out_clear(WriteBuf *out) noexcept nogil   # empties it, keeping a small allocation; no place may be left
cdef void out_free(WriteBuf *out) noexcept nogil    # the same, keeping none
cdef void data_moved() noexcept nogil               # a buffer's data has a new owner

cdef void spare_keep(Spare *spare, WriteBuf *out) noexcept nogil    # takes a buffer's memory, within limits
cdef void spare_use(Spare *spare, WriteBuf *out) noexcept nogil     # gives it to a buffer that has none
cdef void spare_free(Spare *spare) noexcept nogil
