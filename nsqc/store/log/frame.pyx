"""Frames of a log: layout, checks, walking them, deferred records, collecting new ones. See the .pxd."""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.errno cimport ENOMEM, EOPNOTSUPP
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove, memset

from nsqc.store.disk.fileio cimport io_read, io_read_cached
from nsqc.store.message cimport GuidFactory, Message, guid_after, guid_write, message_new
from nsqc.wire.codecs cimport crc32c
from nsqc.wire.gojson cimport escaped_bytes, put_base64, put_escaped
from nsqc.wire.hton cimport load_i32, load_i64, load_u16, store_i32, store_i64, store_u16


# ====================================================================== buffer

cdef extern from *:
    """
    #define NSQC_ADD(counter, n) __atomic_fetch_add(&(counter), (n), __ATOMIC_RELAXED)
    """
    void NSQC_ADD(long counter, long n) nogil

cdef enum:
    FIRST_ROOM = 512

cdef long allocated = 0         # buffers that own memory


cdef int buffer_room(Buffer *buffer, int64_t need) noexcept nogil:
    cdef int64_t room = buffer.length + need
    cdef char *c_grown
    if room <= buffer.room:
        return 0
    room = max(room, 2 * buffer.room, <int64_t> FIRST_ROOM)
    c_grown = <char *> realloc(buffer.c_data, <size_t> room)
    if c_grown is NULL:
        return -1
    NSQC_ADD(allocated, buffer.c_data is NULL)
    buffer.c_data = c_grown
    buffer.room = room
    return 0


cdef void buffer_free(Buffer *buffer) noexcept nogil:
    NSQC_ADD(allocated, -(buffer.c_data is not NULL))
    free(buffer.c_data)
    memset(buffer, 0, sizeof(Buffer))


def log_buffers_alive() -> int:
    """Count of buffers that own memory."""
    return allocated


# ====================================================================== frame

cdef enum:
    MAGIC_AT = 0
    HEAD_CRC_AT = 4
    PAYLOAD_AT = 8
    PAYLOAD_CRC_AT = 12
    FLAGS_AT = 16
    RECORDS_AT = 20
    DELAYS_AT = 24
    IDS_AT = 26
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
    frame.delays = load_u16(c_at + DELAYS_AT)
    frame.ids = load_u16(c_at + IDS_AT)
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
    store_u16(c_at + DELAYS_AT, <uint16_t> frame.delays)
    store_u16(c_at + IDS_AT, <uint16_t> frame.ids)
    store_i32(c_at + ORIGINS_AT, <int> <uint32_t> frame.origins)
    store_i64(c_at + TIME_AT, frame.time_ns)
    store_i64(c_at + ID_AT, frame.id)


cdef int64_t frames_seal(char *c_at, int64_t length, uint64_t salt, int64_t position, int64_t first, int64_t synced,
                         int64_t *time_ns, int64_t *due_ns) noexcept nogil:
    cdef int64_t at = 0
    cdef char *c_head
    cdef Frame frame
    cdef uint32_t index
    while at < length:
        c_head = c_at + at
        frame_load(c_head, &frame)
        store_i32(c_head + PAYLOAD_CRC_AT, <int> crc32c(<const unsigned char *> c_head + FRAME_HEAD, frame.payload))
        store_i64(c_head + FIRST_AT, first)
        store_i64(c_head + SYNCED_AT, synced)
        store_i32(c_head + HEAD_CRC_AT, <int> head_crc(c_head, salt, position + at))
        time_ns[0] = max(time_ns[0], frame.time_ns)
        for index in range(frame.delays):
            due_ns[0] = max(due_ns[0], deferral_at(c_head, &frame, index).due_ns)
        first += frame.records
        at += frame.length
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
    return (frame.records > 0 and frame.delays <= frame.records and frame.ids <= frame.records
            and (frame.records == 1 or frame_records(frame) + frame.origins <= FRAME_FULL)
            and (frame.delays > 0) == ((frame.flags & DELAYS) > 0)
            and (frame.ids > 0) == ((frame.flags & IDS) > 0)
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


cdef Message *frame_message(const Frame *frame, const char *c_record, int64_t index) noexcept nogil:
    cdef char c_id[16]
    guid_write(guid_after(frame.id, index), c_id)
    return message_new(c_id, frame.time_ns, c_record + RECORD_SIZE, <uint32_t> load_i32(c_record))


def whole_batches(bytes data not None, uint64_t salt, int64_t position, int64_t first) -> tuple[int, int]:
    """(bytes, the offset after the last record) of the whole batches of frames at the beginning of data, which lay at a
    position of a segment, with the records from an offset on; 0 bytes: there is none."""
    cdef const char *c_data = PyBytes_AS_STRING(data)
    cdef int64_t at = 0, length = 0, end = 0, have = len(data)
    cdef Frame frame
    with nogil:
        while (at < have and frame_check(c_data + at, have - at, salt, position + at, &frame) == FRAME_SOUND
               and frame.first == first):
            at += frame.length
            first += frame.records
            if not frame.flags & MORE:
                length, end = at, first
    return length, end


# ====================================================================== lines of JSON

cdef enum:
    LINE_BYTES = 160            # most bytes of a line, excluding its origin and its body
    ORIGIN_KEY = 10             # bytes of ,"origin":


cdef int head_of_line(char *c_to, const Frame *frame, int64_t index, bint is_text) noexcept nogil:
    """Writes a line up to the body; returns the number of bytes."""
    cdef char c_id[16]
    guid_write(guid_after(frame.id, index), c_id)
    return snprintf(c_to, LINE_BYTES, b"{\"offset\":%lld,\"timestamp\":%lld,\"id\":\"%.16s\",\"attempts\":0,\"%s\":\"",
                    <long long> (frame.first + index), <long long> frame.time_ns, c_id,
                    <const char *> b"body" if is_text else <const char *> b"body_base64")


cdef inline int64_t origin_bytes(const char *c_origin) noexcept nogil:
    """Bytes of an origin's field, with comma and key; the origin may be NULL."""
    return ORIGIN_KEY + record_length(c_origin) - RECORD_SIZE if c_origin is not NULL else 0


cdef const char *line_origin(const char *c_frame, const Frame *frame, int64_t index) noexcept nogil:
    """The origin of a record. NULL: it has none, or one that is not of one line, as no daemon writes it."""
    cdef const char *c_origin = frame_origin(c_frame, frame, index)
    cdef int64_t length, at
    if c_origin is NULL:
        return NULL
    length = record_length(c_origin) - RECORD_SIZE
    c_origin += RECORD_SIZE
    if length < 2 or c_origin[0] != c"{" or c_origin[length - 1] != c"}":
        return NULL
    for at in range(length):
        if <unsigned char> c_origin[at] < 0x20:
            return NULL
    if escaped_bytes(<const unsigned char *> c_origin, length) < 0:
        return NULL         # not UTF-8
    return c_origin - RECORD_SIZE


cdef int64_t line_bytes(const char *c_frame, const Frame *frame, const char *c_record, int64_t index) noexcept nogil:
    cdef char[LINE_BYTES] head
    cdef int64_t length = <int64_t> <uint32_t> load_i32(c_record)
    cdef int64_t body = escaped_bytes(<const unsigned char *> c_record + RECORD_SIZE, length)
    cdef int64_t origin = origin_bytes(line_origin(c_frame, frame, index))
    if body < 0:
        return origin + head_of_line(head, frame, index, False) + (length + 2) // 3 * 4 + 3
    return origin + head_of_line(head, frame, index, True) + body + 3


cdef int put_line(Buffer *text, const char *c_frame, const Frame *frame, const char *c_record,
                  int64_t index) noexcept nogil:
    """0 or ENOMEM."""
    cdef int64_t length = <int64_t> <uint32_t> load_i32(c_record)
    cdef const char *c_body = c_record + RECORD_SIZE
    cdef const char *c_origin = line_origin(c_frame, frame, index)
    cdef int64_t body = escaped_bytes(<const unsigned char *> c_body, length)
    cdef char *c_to
    if buffer_room(text, LINE_BYTES + origin_bytes(c_origin) + (body if body >= 0 else (length + 2) // 3 * 4)) < 0:
        return ENOMEM
    c_to = text.c_data + text.length
    c_to += head_of_line(c_to, frame, index, body >= 0)
    if body < 0:
        c_to = put_base64(c_to, <const unsigned char *> c_body, length)
    elif body == length:
        memcpy(c_to, c_body, <size_t> body)
        c_to += body
    else:
        c_to = put_escaped(c_to, c_body, length)
    c_to[0] = c'"'
    c_to += 1
    if c_origin is not NULL:
        memcpy(c_to, b",\"origin\":", ORIGIN_KEY)
        memcpy(c_to + ORIGIN_KEY, c_origin + RECORD_SIZE, <size_t> (record_length(c_origin) - RECORD_SIZE))
        c_to += origin_bytes(c_origin)
    memcpy(c_to, b"}\n", 2)
    text.length = c_to + 2 - text.c_data
    return 0


# ====================================================================== walk

cdef enum:
    STEP_BYTES = 262144
    HOP_BYTES = 4096            # bytes of a read that needs a head


cdef void walk_open(Walk *walk, int fd, uint64_t salt, int64_t position, int64_t limit, int64_t base,
                    int64_t most) noexcept nogil:
    memset(walk, 0, sizeof(Walk))
    walk.fd = fd
    walk.salt = salt
    walk.limit = limit
    walk.base = walk.least = base
    walk.most = most
    walk.step = STEP_BYTES
    walk.next = position
    walk.hole = -1


cdef void walk_free(Walk *walk) noexcept nogil:
    buffer_free(&walk.memory)


cdef int64_t fill(Walk *walk, int64_t at, int64_t need) noexcept nogil:
    """Returns the bytes in memory from a position on, `need` unless the segment ends before; -errno."""
    cdef Buffer *memory = &walk.memory
    cdef int64_t kept = max(walk.start + memory.length - at, <int64_t> 0), wanted, got
    need = min(need, walk.limit - at)
    if at < walk.start:
        kept = 0
    elif kept >= need:
        return kept
    if kept:
        memmove(memory.c_data, memory.c_data + (at - walk.start), <size_t> kept)
    walk.start = at
    memory.length = kept
    wanted = min(max(need, walk.step), walk.limit - at) - kept
    if buffer_room(memory, wanted) < 0:
        return -ENOMEM
    if walk.cached:
        got = io_read_cached(walk.fd, memory.c_data + kept, wanted, at + kept)
    else:
        got = io_read(walk.fd, memory.c_data + kept, wanted, at + kept)
    if got < 0:
        return got
    memory.length += got
    if got < wanted and not walk.cached:
        walk.limit = at + memory.length     # the file was truncated
    return memory.length


cdef inline FrameCheck check_next(Walk *walk, int64_t have) noexcept nogil:
    return frame_check(walk.memory.c_data + (walk.next - walk.start), have, walk.salt, walk.next, &walk.frame)


cdef inline bint is_possible(const Walk *walk) noexcept nogil:
    """Whether the offsets of a sound frame fit its place. A lost record leaves its bytes, so offsets rise no faster
    than positions: no count of records exceeds the size of their file."""
    return walk.least <= walk.frame.first <= walk.base + walk.next and walk.frame.first < walk.most


cdef int walk_next(Walk *walk) noexcept nogil:
    cdef FrameCheck answer
    cdef int64_t have
    walk.hole = -1
    while walk.next < walk.limit:
        have = fill(walk, walk.next, FRAME_HEAD)
        if have < 0:
            return <int> have
        answer = check_next(walk, have)
        if answer == FRAME_SHORT and have >= FRAME_HEAD and walk.next + walk.frame.length <= walk.limit:
            if walk.heads:
                answer = FRAME_SOUND
            else:
                have = fill(walk, walk.next, walk.frame.length)
                if have < 0:
                    return <int> have
                answer = check_next(walk, have)
        if answer == FRAME_SHORT:
            answer = FRAME_NONE     # the file ends within it
        if answer == FRAME_UNKNOWN:
            return -EOPNOTSUPP
        if answer == FRAME_SOUND and is_possible(walk):
            walk.position = walk.next
            walk.next += walk.frame.length
            walk.least = walk.frame.first + walk.frame.records
            return 1
        if walk.hole < 0:
            walk.hole = walk.next
        if answer == FRAME_NONE:
            walk.next += FRAME_ALIGN
        else:
            walk.next = min(walk.next + walk.frame.length, walk.limit)
    return 0


cdef int walk_to(Walk *walk, int64_t offset, int64_t time_ns) noexcept nogil:
    cdef int64_t step = walk.step
    cdef int answer = 1
    walk.frame.records = 0
    walk.frame.first = offset
    while answer == 1 and is_before(walk, offset, time_ns):
        walk.heads = True
        walk.step = HOP_BYTES
        while answer == 1 and is_before(walk, offset, time_ns):
            answer = walk_next(walk)
        walk.heads = False
        walk.step = step
        if answer == 1:
            # Read it again, with the following bytes. If its payload is damaged, another one is found.
            walk.next = walk.position
            walk.least = walk.frame.first
            walk.memory.length = 0
            answer = walk_next(walk)
    return answer


cdef inline bint is_before(const Walk *walk, int64_t offset, int64_t time_ns) noexcept nogil:
    return walk.frame.first + walk.frame.records <= offset or walk.frame.time_ns < time_ns


# ====================================================================== delays

cdef enum:
    FIRST_DELAYS = 64
    NS_PER_MS = 1000000


cdef void delays_add(Delays *delays, const char *c_frame, const Frame *frame, int64_t end, int64_t longest_ns,
                     Clock clock) noexcept:
    cdef Deferral deferral
    cdef uint32_t index
    for index in range(frame.delays):
        deferral = deferral_at(c_frame, frame, index)
        if deferral.offset < min(end, frame.first + frame.records):
            delay_add(delays, &deferral, longest_ns, clock)


cdef void delay_add(Delays *delays, const Deferral *deferral, int64_t longest_ns, Clock clock) noexcept:
    # If the clock has jumped back, the message waits for the requested delay and no longer. Without memory it is
    # delivered too early.
    cdef int64_t delay_ns = min(deferral.due_ns - clock.wall, deferral.asked_ms * NS_PER_MS, longest_ns)
    if delay_ns <= 0 or queue_room(<void **> &delays.items, &delays.first, delays.count, &delays.room, sizeof(Delay),
                                   FIRST_DELAYS) < 0:
        return
    delays.items[delays.first + delays.count].offset = deferral.offset
    delays.items[delays.first + delays.count].due_ns = clock.monotonic + delay_ns
    delays.count += 1


cdef int64_t delays_of(Delays *delays, int64_t offset, int64_t now_ns) noexcept:
    cdef int64_t index
    delays_drop_due(delays, now_ns)
    index = find(delays, offset)
    if index == delays.first + delays.count or delays.items[index].offset != offset:
        return 0
    return delays.items[index].due_ns


cdef int64_t delays_from(Delays *delays, int64_t offset, int64_t now_ns) noexcept:
    cdef int64_t index, count = 0
    delays_drop_due(delays, now_ns)
    for index in range(find(delays, offset), delays.first + delays.count):
        if delays.items[index].due_ns > now_ns:
            count += 1
    return count


cdef void delays_drop_due(Delays *delays, int64_t now_ns) noexcept:
    while delays.count and delays.items[delays.first].due_ns <= now_ns:
        delays.first += 1
        delays.count -= 1
    if delays.count == 0:
        delays_free(delays)


cdef void delays_drop_before(Delays *delays, int64_t offset) noexcept:
    cdef int64_t gone = find(delays, offset) - delays.first
    delays.first += gone
    delays.count -= gone
    if delays.count == 0:
        delays_free(delays)


cdef void delays_free(Delays *delays) noexcept:
    free(delays.items)
    memset(delays, 0, sizeof(delays[0]))


cdef int64_t find(Delays *delays, int64_t offset) noexcept:
    """The index of the first delay at or after an offset."""
    return delays.first + array_below(&delays.items[delays.first].offset, sizeof(Delay), delays.count, offset)


# ====================================================================== frames

cdef enum:
    SAME_TIME_NS = 1000000      # messages of one frame share one time


cdef inline bint fits(const Frames *frames, int64_t wall_ns, int64_t length, int64_t origin) noexcept:
    """Whether the open frame has room for more bytes of records and of origins."""
    return (frames.open.records > 0 and (frames.origins.length > 0) == (origin > 0)
            and frames.open.payload + frames.origins.length + length + origin <= FRAME_FULL
            and 0 <= wall_ns - frames.open.time_ns < SAME_TIME_NS)


cdef int add_records(Frames *frames, GuidFactory guids, int64_t wall_ns, int64_t length, int64_t origin,
                     char **c_to) noexcept:
    """Makes room for bytes of records, and an origin, in the open frame or a new one; -1: no memory."""
    if fits(frames, wall_ns, length, origin):
        if buffer_room(&frames.out, length + frames.origins.length + origin + FRAME_ALIGN) < 0:
            return -1
    else:
        # Room for the rest of the frame being closed, and for the origin and padding of the new one.
        if buffer_room(&frames.out, tables_of(frames) + frames.origins.length + FRAME_HEAD + length + origin
                       + 2 * FRAME_ALIGN) < 0:
            return -1
        frames_close(frames, guids)
        frames.open_at = frames.out.length
        frames.open.time_ns = wall_ns
        frames.out.length += FRAME_HEAD
    c_to[0] = frames.out.c_data + frames.out.length
    frames.out.length += length
    frames.open.payload += length
    return 0


cdef int frames_add(Frames *frames, GuidFactory guids, int64_t wall_ns, const char *c_body, uint32_t size,
                    uint32_t defer_ms, const char *c_origin, uint32_t origin_size) noexcept:
    cdef char *c_to = NULL
    cdef int64_t origin = 0
    if defer_ms and buffer_room(&frames.delays, DELAY_BYTES) < 0:
        return -1
    if c_origin is not NULL:
        origin = RECORD_SIZE + <int64_t> origin_size
        if buffer_room(&frames.origins, origin) < 0:
            return -1
    if add_records(frames, guids, wall_ns, RECORD_SIZE + <int64_t> size, origin, &c_to) < 0:
        return -1
    store_i32(c_to, <int> size)
    memcpy(c_to + RECORD_SIZE, c_body, size)
    if defer_ms:
        delay(frames, wall_ns, 1, defer_ms)
    if origin:
        c_to = frames.origins.c_data + frames.origins.length
        store_i32(c_to, <int> origin_size)
        memcpy(c_to + RECORD_SIZE, c_origin, origin_size)
        frames.origins.length += origin
    frames.open.records += 1
    frames.records += 1
    return 0


cdef void delay(Frames *frames, int64_t wall_ns, int64_t count, uint32_t defer_ms) noexcept:
    """Delays the next records of the open frame. There must be room."""
    cdef char *c_delay = frames.delays.c_data + frames.delays.length
    cdef int64_t index
    for index in range(count):
        store_i32(c_delay, <int> (frames.open.records + index))
        store_i64(c_delay + 4, wall_ns + <int64_t> defer_ms * NS_PER_MS)
        store_i32(c_delay + 12, <int> defer_ms)
        c_delay += DELAY_BYTES
    frames.delays.length += count * DELAY_BYTES


cdef int frames_add_batch(Frames *frames, GuidFactory guids, int64_t wall_ns, const char *c_payload, int64_t length,
                          int64_t records, uint32_t defer_ms) noexcept:
    cdef char *c_to = NULL
    cdef int64_t part = length, count = records, left = length
    if defer_ms and buffer_room(&frames.delays, records * DELAY_BYTES) < 0:
        return -1
    # Heads and padding for the most frames it can fill: two consecutive frames hold more than one full one.
    if buffer_room(&frames.out, tables_of(frames) + frames.origins.length + length
                   + (2 + 2 * length // FRAME_FULL) * (FRAME_HEAD + FRAME_ALIGN)) < 0:
        return -1
    if not fits(frames, wall_ns, length, 0):
        frames_close(frames, guids)     # a batch that needs several frames begins a new one
    while left:
        if left > FRAME_FULL:
            part = whole_records(c_payload, left, &count)
        else:
            part, count = left, records
        add_records(frames, guids, wall_ns, part, 0, &c_to)
        memcpy(c_to, c_payload, <size_t> part)
        if defer_ms:
            delay(frames, wall_ns, count, defer_ms)
        frames.open.records += <uint32_t> count
        frames.records += count
        c_payload += part
        left -= part
        records -= count
        if left:
            frames.open.flags |= MORE
            frames_close(frames, guids)
    return 0


cdef int64_t whole_records(const char *c_payload, int64_t length, int64_t *count) noexcept:
    """Bytes of the records that fill a frame; at least one record."""
    cdef int64_t at = 0, size
    count[0] = 0
    while at < length:
        size = record_length(c_payload + at)
        if at and at + size > FRAME_FULL:
            break
        at += size
        count[0] += 1
    return at


cdef void frames_add_id(Frames *frames, const char *c_hash) noexcept:
    if frames.open.records == 0 or frames_reserve_ids(frames, 1) < 0:
        return
    memcpy(frames.ids.c_data + frames.ids.length, c_hash, HASH_BYTES)
    frames.ids.length += HASH_BYTES


cdef inline int64_t tables_of(const Frames *frames) noexcept:
    """Bytes of the open frame's delays and ids."""
    return frames.delays.length + frames.ids.length


cdef void put_section(Frames *frames, Buffer *section) noexcept:
    """Moves a section to the end of the open frame. There must be room."""
    if section.length:
        memcpy(frames.out.c_data + frames.out.length, section.c_data, <size_t> section.length)
        frames.open.payload += section.length
        frames.out.length += section.length
        section.length = 0


cdef void frames_close(Frames *frames, GuidFactory guids) noexcept:
    """Needs room for origins and padding: add_records() reserved it."""
    cdef int64_t end
    if frames.open.records == 0:
        return
    frames.open.id = guids.take(frames.open.records, frames.open.time_ns)
    if tables_of(frames) and buffer_room(&frames.out, tables_of(frames) + frames.origins.length + FRAME_ALIGN) < 0:
        # They are delivered at once, and a restart forgets the ids: neither loses a message.
        frames.delays.length = frames.ids.length = 0
    frames.open.delays = <uint32_t> (frames.delays.length // DELAY_BYTES)
    frames.open.ids = <uint32_t> (frames.ids.length // HASH_BYTES)
    frames.open.origins = frames.origins.length
    frames.open.flags |= (DELAYS * (frames.open.delays > 0) | IDS * (frames.open.ids > 0)
                          | ORIGINS * (frames.open.origins > 0))
    put_section(frames, &frames.delays)
    put_section(frames, &frames.ids)
    put_section(frames, &frames.origins)
    frame_store(frames.out.c_data + frames.open_at, &frames.open)
    end = frames.open_at + frame_length(frames.open.payload)
    memset(frames.out.c_data + frames.out.length, 0, <size_t> (end - frames.out.length))
    frames.out.length = end
    memset(&frames.open, 0, sizeof(Frame))


cdef int64_t frames_bodies(const Buffer *out) noexcept nogil:
    cdef int64_t at = 0, found = 0
    cdef Frame frame
    while at < out.length:
        frame_load(out.c_data + at, &frame)
        found += frame_records(&frame) - frame.records * RECORD_SIZE
        at += frame.length
    return found


cdef void frames_free(Frames *frames) noexcept nogil:
    buffer_free(&frames.out)
    buffer_free(&frames.delays)
    buffer_free(&frames.ids)
    buffer_free(&frames.origins)
    memset(frames, 0, sizeof(Frames))
