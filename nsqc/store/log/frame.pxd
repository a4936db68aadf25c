# Frames of a log: layout, checks, walking them, deferred records, collecting new ones.

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport realloc
from libc.string cimport memmove

from nsqc.store.memory cimport Clock
from nsqc.store.message cimport GuidFactory, Message
from nsqc.wire.hton cimport load_i32, load_i64


# ====================================================================== array
# Growing arrays, and binary search in sorted ones. Header only.

# Makes room for `need` items of `size` bytes, and for `least` when it first allocates; -1: no memory.
cdef inline int array_room(void **items, int64_t *room, int64_t need, size_t size, int64_t least) noexcept nogil:
    cdef int64_t more = max(need, 2 * room[0], least)
    cdef void *grown
    if need <= room[0]:
        return 0
    grown = realloc(items[0], <size_t> more * size)
    if grown is NULL:
        return -1
    items[0] = grown
    room[0] = more
    return 0


# Counts the leading items whose field is below a limit. `field` points to it in the first item; values ascend.
cdef inline int64_t array_below(const int64_t *field, size_t size, int64_t count, int64_t limit) noexcept nogil:
    cdef int64_t low = 0, high = count, middle
    while low < high:
        middle = (low + high) // 2
        if (<const int64_t *> (<const char *> field + middle * <int64_t> size))[0] < limit:
            low = middle + 1
        else:
            high = middle
    return low


# Makes room for one more item after items[first : first + count], which may move to the front; -1: no memory.
cdef inline int queue_room(void **items, int64_t *first, int64_t count, int64_t *room, size_t size,
                           int64_t least) noexcept nogil:
    if first[0] + count < room[0]:
        return 0
    if first[0] <= count:
        return array_room(items, room, room[0] + 1, size, least)
    memmove(items[0], <char *> items[0] + first[0] * <int64_t> size, <size_t> count * size)
    first[0] = 0
    return 0


# ====================================================================== buffer
# Growing buffers.

cdef struct Buffer:
    char *c_data            # owned; NULL: none
    int64_t length, room    # bytes
    int64_t records         # that it holds, for a batch

cdef int buffer_room(Buffer *buffer, int64_t need) noexcept nogil   # room for `need` more bytes; -1: no memory
cdef void buffer_free(Buffer *buffer) noexcept nogil


# ====================================================================== frame
# A frame: the unit in which a log is written, checked and lost. docs/ondisk.md has the format.
#
# The salt and the position make a frame valid in one place only: a copy inside a body, or one that remains on the disk
# from an earlier file, never counts.

cdef enum:
    FRAME_HEAD = 64
    FRAME_ALIGN = 8
    DELAY_BYTES = 16
    HASH_BYTES = 16               # of a publish: its hash
    RECORD_SIZE = 4             # before each body
    MORE = 1                    # flags: the batch continues in the next frame
    DELAYS = 2
    ORIGINS = 4
    IDS = 8
    KNOWN_FLAGS = 15
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
    int64_t id                  # of its first record, see message.pxd
    int64_t synced
    int64_t length              # in the file, with head and padding
    int64_t payload
    int64_t origins             # total bytes of the origins; 0: none
    uint32_t records, delays
    uint32_t ids                # publishes with an id whose last record is in it
    uint32_t crc                # of the payload
    uint16_t flags


# Whether a valid frame begins at c_at, with `have` bytes in memory. Checksums only prove that it is unchanged, and a
# file may come from anyone: after FRAME_SOUND all its parts lie within it, and its numbers can be added. After
# FRAME_SHORT (with more than a head) only the head may be used, and after FRAME_DAMAGED only the length.
cdef FrameCheck frame_check(const char *c_at, int64_t have, uint64_t salt, int64_t position,
                            Frame *frame) noexcept nogil
# The head of a frame that was already checked.
cdef void frame_load(const char *c_at, Frame *frame) noexcept nogil
# Completes the heads of frames that are about to be written at this position; returns the offset after the last record.
# Raises these to their latest publish time, and the latest due time of their delayed records.
cdef int64_t frames_seal(char *c_at, int64_t length, uint64_t salt, int64_t position, int64_t first, int64_t synced,
                         int64_t *time_ns, int64_t *due_ns) noexcept nogil
cdef void frame_store(char *c_at, const Frame *frame) noexcept nogil    # an unsealed head

# Offsets, positions and sequence numbers do not exceed names.MOST_OFFSET, so the sum of two fits 64 bits. Publishes are
# refused before that.
cdef inline bint is_offset(int64_t number) noexcept nogil:
    return 0 <= number <= MOST_OFFSET

cdef inline int64_t frame_length(int64_t payload) noexcept nogil:
    return (FRAME_HEAD + payload + FRAME_ALIGN - 1) & ~<int64_t> (FRAME_ALIGN - 1)

cdef inline int64_t record_length(const char *c_record) noexcept nogil:
    return RECORD_SIZE + <int64_t> <uint32_t> load_i32(c_record)

# Bytes of its records, which follow the head; then come the delays, the ids and the origins.
cdef inline int64_t frame_records(const Frame *frame) noexcept nogil:
    return (frame.payload - frame.origins - <int64_t> frame.delays * DELAY_BYTES
            - <int64_t> frame.ids * HASH_BYTES)

cdef inline const char *frame_delays(const char *c_at, const Frame *frame) noexcept nogil:
    return c_at + FRAME_HEAD + frame_records(frame)

cdef inline const char *frame_ids(const char *c_at, const Frame *frame) noexcept nogil:
    return frame_delays(c_at, frame) + <int64_t> frame.delays * DELAY_BYTES

# The origin of a record, after its size; NULL: the frame has none. Steps over each record before it.
cdef const char *frame_origin(const char *c_at, const Frame *frame, int64_t index) noexcept nogil

# The message of a record of a valid frame; NULL: no memory.
cdef Message *frame_message(const Frame *frame, const char *c_record, int64_t index) noexcept nogil


# ====================================================================== lines of JSON
# Records as lines of JSON: one record, given by its index in the frame at c_frame.

cdef int64_t line_bytes(const char *c_frame, const Frame *frame, const char *c_record, int64_t index) noexcept nogil
cdef int put_line(Buffer *text, const char *c_frame, const Frame *frame, const char *c_record,
                  int64_t index) noexcept nogil         # 0 or ENOMEM


# ====================================================================== walk
# A walk over the frames of a segment, in order. Only valid frames count, and only this module finds the next one.
# Needs no GIL.

cdef struct Walk:
    # Set by walk_open().
    int fd                  # borrowed
    uint64_t salt
    int64_t limit           # where the frames of the segment, or its file, end
    int64_t base            # the first offset of the segment
    int64_t least           # no frame begins at a lower offset: the end of the frame before
    int64_t most            # no frame begins at this offset or a higher one: the end of the segment
    int64_t step            # bytes of a read, unless a frame needs more
    bint cached             # reads the page cache only; else returns -EAGAIN
    bint heads              # payloads are neither read nor checked
    # What is in memory.
    Buffer memory           # owned
    int64_t start           # position of its first byte
    # The result.
    Frame frame
    int64_t position        # of the frame
    int64_t next            # where to look for the next one
    int64_t hole            # where damage before the frame, or before the end, begins; -1: none

cdef void walk_open(Walk *walk, int fd, uint64_t salt, int64_t position, int64_t limit, int64_t base,
                    int64_t most) noexcept nogil
# 1: walk.frame lies at walk.position, and whole at walk_data() unless only heads are read; 0: no more frames;
# -errno: of a read, ENOMEM, or EOPNOTSUPP for a frame of a later version.
cdef int walk_next(Walk *walk) noexcept nogil
cdef void walk_free(Walk *walk) noexcept nogil
# Hops over heads to the first frame that ends after an offset and is no older than a time, then reads it whole, with
# following frames up to walk.step bytes. Returns as walk_next().
cdef int walk_to(Walk *walk, int64_t offset, int64_t time_ns) noexcept nogil
cdef inline const char *walk_data(const Walk *walk) noexcept nogil:
    return walk.memory.c_data + (walk.position - walk.start)


# ====================================================================== delays
# Due times of the log's deferred messages (DPUB) that may still be in the future, ordered by offset.

cdef struct Deferral:       # as stored in a frame
    int64_t offset
    int64_t due_ns          # since 1970
    int64_t asked_ms

cdef struct Delay:
    int64_t offset
    int64_t due_ns          # monotonic

cdef struct Delays:
    Delay *items            # owned
    int64_t first, count, room  # valid: items[first : first + count]

# c_frame: the whole frame.
cdef inline Deferral deferral_at(const char *c_frame, const Frame *frame, int64_t index) noexcept nogil:
    cdef const char *c_delay = frame_delays(c_frame, frame) + index * DELAY_BYTES
    cdef Deferral found
    found.offset = frame.first + <int64_t> <uint32_t> load_i32(c_delay)
    found.due_ns = load_i64(c_delay + 4)
    found.asked_ms = <int64_t> <uint32_t> load_i32(c_delay + 12)
    return found

# Adds a message; it waits at most longest_ns.
cdef void delay_add(Delays *delays, const Deferral *deferral, int64_t longest_ns, Clock clock) noexcept
# Adds the delayed messages of the whole frame at c_frame that come before an offset.
cdef void delays_add(Delays *delays, const char *c_frame, const Frame *frame, int64_t end, int64_t longest_ns,
                     Clock clock) noexcept
# Due time of a message; 0: it is not deferred.
cdef int64_t delays_of(Delays *delays, int64_t offset, int64_t now_ns) noexcept
# Number of messages from an offset on that are not due yet.
cdef int64_t delays_from(Delays *delays, int64_t offset, int64_t now_ns) noexcept
cdef void delays_drop_due(Delays *delays, int64_t now_ns) noexcept      # leading ones that are due
cdef void delays_drop_before(Delays *delays, int64_t offset) noexcept   # those of removed messages
cdef void delays_free(Delays *delays) noexcept


# ====================================================================== frames
# Collects frames for the next write. Messages published within a millisecond share a frame of up to FRAME_FULL bytes.

cdef struct Frames:
    Buffer out              # closed frames, and the open one without its delays, ids and origins; owned
    Buffer delays           # of the open frame, in their final form; owned
    Buffer ids              # likewise
    Buffer origins          # likewise: either all its messages are dead letters, or none
    int64_t open_at         # where the open frame begins in `out`
    Frame open              # its head; 0 records: no frame is open
    int64_t records         # total

# Adds a message; -1: no memory. defer_ms: its delay; 0: none. c_origin: of a dead letter, a JSON object of up to
# MOST_ORIGIN bytes; NULL for other messages.
cdef int frames_add(Frames *frames, GuidFactory guids, int64_t wall_ns, const char *c_body, uint32_t size,
                    uint32_t defer_ms, const char *c_origin, uint32_t origin_size) noexcept
# Adds a batch, the checked payload of an MPUB: all of it, or none with -1 (no memory). defer_ms: of each message.
cdef int frames_add_batch(Frames *frames, GuidFactory guids, int64_t wall_ns, const char *c_payload, int64_t length,
                          int64_t records, uint32_t defer_ms) noexcept
# The id of the publish just added: it counts if, and only if, its last record does.
cdef void frames_add_id(Frames *frames, const char *c_hash) noexcept
cdef inline int frames_reserve_ids(Frames *frames, int64_t count) noexcept:     # room for more ids; -1: no memory
    return buffer_room(&frames.ids, count * HASH_BYTES)
cdef void frames_close(Frames *frames, GuidFactory guids) noexcept      # call before writing them
cdef int64_t frames_bodies(const Buffer *out) noexcept nogil        # bytes of the bodies in closed frames
cdef void frames_free(Frames *frames) noexcept nogil
