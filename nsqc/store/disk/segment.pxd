# One data file: its record layout, and how intact records are told from damage. Knows positions, not queues.
#
#   offset  bytes  field            all numbers big-endian
#        0      4  size of what follows: 26 + body
#        4     26  a message's head as on the wire: timestamp, attempts, id
#       30      n  body
#
# Corruption rules. A record is damaged if its size is out of range or exceeds the data (nsqd's rule), or if its id
# could not be sent in a command line. An id need not be hexadecimal: other programs write other ids. After damage, the
# search continues at the next head with plausible size, timestamp and id, all as nsqd and nsqc write them. The two
# heads after each record are checked as well: if one is implausible, and a record that fits into the rest of the file
# starts inside this one, then this one's size is damaged. A head found by the search may be made up of pieces of
# others that happen to point at a third one (the rest of a damaged head, and a body that starts with digits): it is
# rejected if several consecutive records lie inside it.

from libc.stdint cimport int32_t, int64_t, uint16_t
from nsqc.store.message cimport Message
from nsqc.wire.const cimport ATTEMPTS_AT, MESSAGE_HEAD_BYTES, MESSAGE_ID_AT, SIZE_BYTES, TIMESTAMP_AT

cdef enum:
    RECORD_TIMESTAMP_AT = SIZE_BYTES + TIMESTAMP_AT
    RECORD_ATTEMPTS_AT = SIZE_BYTES + ATTEMPTS_AT
    RECORD_ID_AT = SIZE_BYTES + MESSAGE_ID_AT
    HEAD_BYTES = SIZE_BYTES + MESSAGE_HEAD_BYTES    # everything before the body: the smallest record
    BLOCK_BYTES = 256 * 1024    # largest read during a search


cdef struct Window:
    # Part of one file in memory. Bytes before limit never change, so data in the window stays valid.
    char *c_data            # owned; NULL until the first read
    int64_t room            # bytes allocated
    int64_t start           # file offset of the first byte
    int64_t length          # valid bytes; start + length <= limit
    int64_t limit           # end of data in the file
    int64_t step            # minimum size of further reads
    int64_t unreadable      # bytes that the disk could not read; they are zeros


cdef struct Tally:
    int64_t records         # intact ones
    int64_t end             # after the last intact record
    int64_t damaged         # bytes before that which belong to no record
    int64_t size            # of the file
    int error               # errno if the file could not be read


cdef int window_fill(Window *window, int fd, int64_t at, int64_t need) noexcept nogil   # 0 or errno
cdef void window_adopt(Window *window, char *c_data, int64_t room) noexcept nogil      # takes ownership of the data
cdef void window_free(Window *window) noexcept nogil

cdef struct Block:
    # The result of reading a file: consecutive whole records, each checked.
    Window window           # owned by the block's holder; its limit is the end of data in the file
    int answer              # 1: has records; 0: none up to the limit; below 0: -errno
    int64_t begin           # where the first begins
    int64_t end             # after the last

# Reads records at or after an offset, about want bytes and at least one record. limit: the end of data; below 0: the
# file's own.
cdef void block_read(Block *block, const char *c_path, int64_t at, int64_t limit, int64_t max_bytes,
                     int64_t want) noexcept nogil

# The next record at or after an offset: 1 and its place; 0 if none follows before the limit; or -errno.
cdef int segment_next(Window *window, int fd, int64_t max_bytes, int64_t at,
                      int64_t *begin, int64_t *length) noexcept nogil
# Whether a head with plausible size, timestamp and id starts here; HEAD_BYTES must be readable.
cdef bint head_plausible(const char *c_head, int64_t max_bytes) noexcept nogil
cdef void record_store(char *c_to, Message *message, uint16_t attempts) noexcept nogil
cdef Message *record_load(const char *c_record, uint16_t *attempts) noexcept nogil      # NULL: no memory
# Counts the records of a file from an offset on. limit: the end of data; below 0: the file's own.
cdef Tally tally(const char *c_path, int64_t start, int64_t limit, int64_t max_bytes) noexcept nogil
