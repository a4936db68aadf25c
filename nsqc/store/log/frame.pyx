"""Frames: stored, loaded and checked. See the .pxd."""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from nsqc.store.guid cimport guid_after, guid_write
from nsqc.store.message cimport Message, message_new
from nsqc.wire.crc32c cimport crc32c
from nsqc.wire.hton cimport load_i32, load_i64, load_u16, store_i32, store_i64, store_u16

cdef enum:
    MAGIC_AT = 0
    HEAD_CRC_AT = 4
    PAYLOAD_AT = 8
    PAYLOAD_CRC_AT = 12
    FLAGS_AT = 16
    RECORDS_AT = 20
    DELAYS_AT = 24
    ORIGINS_AT = 28
    FIRST_AT = 32
    TIME_AT = 40
    ID_AT = 48
    SYNCED_AT = 56
    DELAY_DUE_AT = 4            # in the entry of a delayed record
    SEEDED_BYTES = 72           # salt, position, and the head after its checksum
    MAGIC = 0x6E714652


cdef uint32_t head_crc(const char *c_head, uint64_t salt, int64_t position) noexcept nogil:
    cdef char seeded[SEEDED_BYTES]
    store_i64(seeded, <int64_t> salt)
    store_i64(seeded + 8, position)
    memcpy(seeded + 16, c_head + PAYLOAD_AT, FRAME_HEAD - PAYLOAD_AT)
    return crc32c(<const unsigned char *> seeded, SEEDED_BYTES)


cdef void frame_load(const char *c_at, Frame *frame) noexcept nogil:
    frame.payload = <int64_t> <uint32_t> load_i32(c_at + PAYLOAD_AT)
    frame.crc = <uint32_t> load_i32(c_at + PAYLOAD_CRC_AT)
    frame.flags = load_u16(c_at + FLAGS_AT)
    frame.records = <uint32_t> load_i32(c_at + RECORDS_AT)
    frame.delays = <uint32_t> load_i32(c_at + DELAYS_AT)
    frame.origins = <int64_t> <uint32_t> load_i32(c_at + ORIGINS_AT)
    frame.first = load_i64(c_at + FIRST_AT)
    frame.time_ns = load_i64(c_at + TIME_AT)
    frame.id = load_i64(c_at + ID_AT)
    frame.synced = load_i64(c_at + SYNCED_AT)
    frame.length = frame_length(frame.payload)


cdef void frame_store(char *c_at, const Frame *frame) noexcept nogil:
    memset(c_at, 0, FRAME_HEAD)
    store_i32(c_at, MAGIC)
    store_i32(c_at + PAYLOAD_AT, <int> <uint32_t> frame.payload)
    store_u16(c_at + FLAGS_AT, frame.flags)
    store_i32(c_at + RECORDS_AT, <int> frame.records)
    store_i32(c_at + DELAYS_AT, <int> frame.delays)
    store_i32(c_at + ORIGINS_AT, <int> <uint32_t> frame.origins)
    store_i64(c_at + TIME_AT, frame.time_ns)
    store_i64(c_at + ID_AT, frame.id)


cdef int64_t frames_seal(char *c_at, int64_t length, uint64_t salt, int64_t position, int64_t first,
                         int64_t synced) noexcept nogil:
    cdef int64_t at = 0, payload
    cdef char *c_head
    while at < length:
        c_head = c_at + at
        payload = <int64_t> <uint32_t> load_i32(c_head + PAYLOAD_AT)
        store_i32(c_head + PAYLOAD_CRC_AT, <int> crc32c(<const unsigned char *> c_head + FRAME_HEAD, payload))
        store_i64(c_head + FIRST_AT, first)
        store_i64(c_head + SYNCED_AT, synced)
        store_i32(c_head + HEAD_CRC_AT, <int> head_crc(c_head, salt, position + at))
        first += <int64_t> <uint32_t> load_i32(c_head + RECORDS_AT)
        at += frame_length(payload)
    return first


cdef FrameCheck frame_check(const char *c_at, int64_t have, uint64_t salt, int64_t position,
                            Frame *frame) noexcept nogil:
    frame.length = FRAME_HEAD
    if have < FRAME_HEAD:
        return FRAME_SHORT
    if (load_i32(c_at) != MAGIC or position % FRAME_ALIGN
            or <uint32_t> load_i32(c_at + HEAD_CRC_AT) != head_crc(c_at, salt, position)):
        return FRAME_NONE
    frame_load(c_at, frame)
    if frame.flags & ~<int> KNOWN_FLAGS:
        return FRAME_UNKNOWN
    if not is_consistent(frame):
        return FRAME_DAMAGED
    if have < frame.length:
        return FRAME_SHORT
    if crc32c(<const unsigned char *> c_at + FRAME_HEAD, frame.payload) != frame.crc or not is_walkable(c_at, frame):
        return FRAME_DAMAGED
    return FRAME_SOUND


cdef bint is_consistent(const Frame *frame) noexcept nogil:
    """Whether the numbers of a head fit each other. None overflows: counts and lengths have 32 bits."""
    return (frame.records > 0 and frame.delays <= frame.records
            and (frame.records == 1 or frame_records(frame) + frame.origins <= FRAME_FULL)
            and (frame.delays > 0) == ((frame.flags & DELAYS) > 0)
            and (frame.origins > 0) == ((frame.flags & ORIGINS) > 0)
            and frame_records(frame) >= <int64_t> frame.records * RECORD_SIZE
            and is_offset(frame.first) and is_offset(frame.first + frame.records) and frame.time_ns >= 0)


cdef bint is_walkable(const char *c_at, const Frame *frame) noexcept nogil:
    """Whether the records, the delays and the origins fill the payload of a consistent frame."""
    return (fills(c_at + FRAME_HEAD, frame_records(frame), frame.records)
            and (frame.delays == 0 or are_delays(frame_delays(c_at, frame), frame))
            and (frame.origins == 0 or fills(c_at + FRAME_HEAD + frame.payload - frame.origins, frame.origins,
                                             frame.records)))


cdef bint are_delays(const char *c_delay, const Frame *frame) noexcept nogil:
    """Whether they belong to records, in order, and have times."""
    cdef int64_t record = -1
    cdef uint32_t _index
    for _index in range(frame.delays):
        if <int64_t> <uint32_t> load_i32(c_delay) <= record or load_i64(c_delay + DELAY_DUE_AT) < 0:
            return False
        record = <int64_t> <uint32_t> load_i32(c_delay)
        c_delay += DELAY_BYTES
    return record < frame.records


cdef inline bint fills(const char *c_item, int64_t left, uint32_t count) noexcept nogil:
    """Whether `count` items, each after its size, fill exactly `left` bytes."""
    cdef uint32_t _index
    for _index in range(count):
        if left < RECORD_SIZE or record_length(c_item) > left:
            return False
        left -= record_length(c_item)
        c_item += record_length(c_item)
    return left == 0


cdef const char *frame_origin(const char *c_at, const Frame *frame, int64_t index) noexcept nogil:
    cdef const char *c_origin = c_at + FRAME_HEAD + frame.payload - frame.origins
    cdef int64_t _index
    if frame.origins == 0:
        return NULL
    for _index in range(index):
        c_origin += record_length(c_origin)
    return c_origin


cdef void frames_latest(const char *c_at, int64_t length, int64_t *time_ns, int64_t *due_ns) noexcept nogil:
    cdef int64_t at = 0
    cdef const char *c_delay
    cdef Frame frame
    cdef uint32_t index
    while at < length:
        frame_load(c_at + at, &frame)
        time_ns[0] = max(time_ns[0], frame.time_ns)
        c_delay = frame_delays(c_at + at, &frame)
        for index in range(frame.delays):
            due_ns[0] = max(due_ns[0], load_i64(c_delay + index * DELAY_BYTES + DELAY_DUE_AT))
        at += frame.length


cdef Message *frame_message(const Frame *frame, const char *c_record, int64_t index) noexcept nogil:
    cdef char c_id[16]
    guid_write(guid_after(frame.id, index), c_id)
    return message_new(c_id, frame.time_ns, c_record + RECORD_SIZE, <uint32_t> load_i32(c_record))
