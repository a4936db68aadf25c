# One record of a data file, and what counts as a plausible one.
#
#   offset  bytes  field
#        0      4  size of what follows, big-endian: 26 to 26 + the largest message
#        4      8  timestamp, nanoseconds since 1970
#       12      2  attempts so far
#       14     16  message id, hexadecimal digits
#       30      n  body

from libc.stdint cimport int32_t, int64_t, uint16_t
from nsqc.store.message cimport Message

cdef enum:
    RECORD_HEAD = 30

# A chain of sizes alone would follow a wrong size anywhere it points. So a record also counts as damaged
#   - if its id could not stand in a command line, or
#   - if what follows it is no record and one that looks intact begins inside it: then its size is wrong.
# An id needs not be hexadecimal to be read, only to be found again behind a damage: other writers make other ids.

cdef struct Scan:
    int64_t records         # whole records
    int64_t end             # offset behind the last whole one
    bint damaged            # what follows it is not just the beginning of a record

cdef void record_store(char *c_to, Message *message, uint16_t attempts) noexcept nogil
# The message of the record at c_from, whose size has been checked; NULL: no memory.
cdef Message *record_load(const char *c_from, uint16_t *attempts) noexcept nogil
# Size of the record that begins at c_from, its size field included; 0: have is too short for it, -1: it is none.
cdef int64_t record_size(const char *c_from, int64_t have, int64_t max_message) noexcept nogil
# Whether the record of size bytes at c_from, of which have are at hand and left remain up to the end of the data, is
# what it seems to be. have must reach four bytes behind it where so many are left.
cdef bint record_holds(const char *c_from, int64_t size, int64_t have, int64_t left,
                       int64_t max_message) noexcept nogil
# Counts the chain of records in have bytes.
cdef Scan record_scan(const char *c_from, int64_t have, int64_t max_message) noexcept nogil
# Offset of the next record at or behind at that looks intact, for going on behind a damage; -1: there is none.
cdef int64_t record_resync(const char *c_from, int64_t at, int64_t have, int64_t max_message) noexcept nogil
