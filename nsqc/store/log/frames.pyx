"""Collects frames. See the .pxd."""

from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcpy, memset

from nsqc.store.guid cimport GuidFactory
from nsqc.store.log.buffer cimport buffer_free, buffer_room
from nsqc.store.log.frame cimport (DELAY_BYTES, DELAYS, FRAME_ALIGN, FRAME_FULL, FRAME_HEAD, MORE, ORIGINS,
                                   RECORD_SIZE, frame_length, frame_store, record_length)
from nsqc.wire.hton cimport store_i32, store_i64

cdef enum:
    NS_PER_MS = 1000000
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
        if buffer_room(&frames.out, frames.delays.length + frames.origins.length + FRAME_HEAD + length + origin
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
    if buffer_room(&frames.out, frames.delays.length + frames.origins.length + length
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


cdef void frames_close(Frames *frames, GuidFactory guids) noexcept:
    """Needs room for delays, origins and padding: add_records() reserved it, or does so here."""
    cdef int64_t end
    if frames.open.records == 0:
        return
    frames.open.id = guids.take(frames.open.records, frames.open.time_ns)
    if frames.delays.length and buffer_room(&frames.out, frames.delays.length + FRAME_ALIGN) == 0:
        # Without memory they are delivered at once: an early delivery loses nothing.
        memcpy(frames.out.c_data + frames.out.length, frames.delays.c_data, <size_t> frames.delays.length)
        frames.open.delays = <uint32_t> (frames.delays.length // DELAY_BYTES)
        frames.open.flags |= DELAYS
        frames.open.payload += frames.delays.length
        frames.out.length += frames.delays.length
    frames.delays.length = 0
    if frames.origins.length:
        memcpy(frames.out.c_data + frames.out.length, frames.origins.c_data, <size_t> frames.origins.length)
        frames.open.origins = frames.origins.length
        frames.open.flags |= ORIGINS
        frames.open.payload += frames.origins.length
        frames.out.length += frames.origins.length
        frames.origins.length = 0
    frame_store(frames.out.c_data + frames.open_at, &frames.open)
    end = frames.open_at + frame_length(frames.open.payload)
    memset(frames.out.c_data + frames.out.length, 0, <size_t> (end - frames.out.length))
    frames.out.length = end
    memset(&frames.open, 0, sizeof(Frame))


cdef void frames_free(Frames *frames) noexcept nogil:
    buffer_free(&frames.out)
    buffer_free(&frames.delays)
    buffer_free(&frames.origins)
    memset(frames, 0, sizeof(Frames))
