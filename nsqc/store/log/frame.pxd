# A frame: the unit in which a log is written, checked and lost. docs/ondisk.md has the format.
#
# The salt and the position make a frame valid in one place only: a copy inside a body, or one that remains on the disk
# from an earlier file, never counts.

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t

from nsqc.store.message cimport Message
from nsqc.wire.hton cimport load_i32

cdef enum:
    FRAME_HEAD = 64
    FRAME_ALIGN = 8
    DELAY_BYTES = 16
    RECORD_SIZE = 4             # before each body
    MORE = 1                    # flags: the batch continues in the next frame
    DELAYS = 2
    ORIGINS = 4
    KNOWN_FLAGS = 7
    MOST_ORIGIN = 4096          # bytes of an origin
    FRAME_FULL = 65536          # payload bytes at which a frame is closed; one larger record makes a larger frame

cdef extern from *:
    """
    #define NSQC_MOST_OFFSET (1LL << 62)
    """
    const int64_t MOST_OFFSET "NSQC_MOST_OFFSET"


cdef enum FrameCheck:
    FRAME_SOUND
    FRAME_SHORT                 # more bytes are needed, Frame.length in total
    FRAME_DAMAGED               # its records are lost: the payload is damaged, or the head contradicts itself
    FRAME_NONE                  # no head: search for the next one in steps of FRAME_ALIGN
    FRAME_UNKNOWN               # a flag of a later version


cdef struct Frame:
    int64_t first               # offset of its first record
    int64_t time_ns
    int64_t id                  # of its first record, see guid.pxd
    int64_t synced
    int64_t length              # in the file, with head and padding
    int64_t payload
    int64_t origins             # total bytes of the origins; 0: none
    uint32_t records, delays
    uint32_t crc                # of the payload
    uint16_t flags


# Whether a valid frame begins at c_at, with `have` bytes in memory. Checksums only prove that it is unchanged, and a
# file may come from anyone: after FRAME_SOUND all its parts lie within it, and its numbers can be added. After
# FRAME_SHORT (with more than a head) only the head may be used, and after FRAME_DAMAGED only the length.
cdef FrameCheck frame_check(const char *c_at, int64_t have, uint64_t salt, int64_t position,
                            Frame *frame) noexcept nogil
# The head of a frame that was already checked.
cdef void frame_load(const char *c_at, Frame *frame) noexcept nogil
# Completes the heads of frames made by frames.pxd, about to be written at this position; returns the offset after the
# last record.
cdef int64_t frames_seal(char *c_at, int64_t length, uint64_t salt, int64_t position, int64_t first,
                         int64_t synced) noexcept nogil
cdef void frame_store(char *c_at, const Frame *frame) noexcept nogil    # an unsealed head

# Raises these to the latest publish time of consecutive frames, and the latest due time of their delayed records.
cdef void frames_latest(const char *c_at, int64_t length, int64_t *time_ns, int64_t *due_ns) noexcept nogil

# Offsets, positions and sequence numbers do not exceed names.MOST_OFFSET, so the sum of two fits 64 bits. Publishes are
# refused before that.
cdef inline bint is_offset(int64_t number) noexcept nogil:
    return 0 <= number <= MOST_OFFSET

cdef inline int64_t frame_length(int64_t payload) noexcept nogil:
    return (FRAME_HEAD + payload + FRAME_ALIGN - 1) & ~<int64_t> (FRAME_ALIGN - 1)

cdef inline int64_t record_length(const char *c_record) noexcept nogil:
    return RECORD_SIZE + <int64_t> <uint32_t> load_i32(c_record)

# Bytes of its records, which follow the head; then come the delays, then the origins.
cdef inline int64_t frame_records(const Frame *frame) noexcept nogil:
    return frame.payload - frame.origins - <int64_t> frame.delays * DELAY_BYTES

cdef inline const char *frame_delays(const char *c_at, const Frame *frame) noexcept nogil:
    return c_at + FRAME_HEAD + frame_records(frame)

# The origin of a record, after its size; NULL: the frame has none. Steps over each record before it.
cdef const char *frame_origin(const char *c_at, const Frame *frame, int64_t index) noexcept nogil

# The message of a record of a valid frame; NULL: no memory.
cdef Message *frame_message(const Frame *frame, const char *c_record, int64_t index) noexcept nogil
