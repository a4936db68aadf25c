# One data file of a disk queue: records, the write buffer, the jobs that read and write it.

from libc.stdint cimport int32_t, int64_t, uint16_t

from nsqc.store.disk.fileio cimport Job
from nsqc.store.message cimport Message, Place, Unacked
from nsqc.wire.const cimport ATTEMPTS_AT, MESSAGE_HEAD_BYTES, MESSAGE_ID_AT, SIZE_BYTES, TIMESTAMP_AT


# ====================================================================== segment
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


# ====================================================================== write buffer
# Records to be written to a file, in the file's layout; and the former places of those that were in files before.
#
# A place ends once its record has been rewritten. The writer of the buffer ends it, or forget_formers() does.

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


# ====================================================================== file jobs
# Jobs that an IoPool's threads run for a disk queue: writing records to files and reading blocks of them.

cdef enum:
    FEW_FILES = 1000            # consecutive numbers to try; beyond that, the folder is listed


cdef struct WriteJob:
    Job job
    const char *c_prefix    # of the queue's file names; borrowed
    WriteBuf out            # owned
    int64_t number, at      # where it starts
    int64_t max_file
    bint partial            # on a full disk, keep the records that fit
    bint stale              # the queue has been emptied meanwhile
    # The result.
    int error
    int64_t end_number, end_at      # after the last written record
    int64_t first_end               # where the first file ends; below 0: there is only one
    int64_t kept                    # bytes of out that are in files

cdef struct ReadJob:
    Job job
    const char *c_prefix
    int64_t number, at, limit, max_record, want
    int64_t last_number, last_at    # the write position, for counting
    int64_t committed               # of the queue at that time
    bint probes             # only looks for damage: the block is dropped unless pop() waits for it
    bint counts             # on damage, count the remaining records
    bint stale              # as above
    Block block             # owned
    # The result, if records were counted after damage.
    int64_t here            # records in the rest of this file
    int64_t lost            # bytes there that belong to no record
    int64_t later           # records in later files
    int64_t following       # the first existing later file; 0: none of those tried


cdef void run_write(Job *c_job) noexcept nogil      # of a WriteJob
cdef void run_read(Job *c_job) noexcept nogil       # of a ReadJob
