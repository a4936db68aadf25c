"""What counts of a segment. See the .pxd."""

from libc.stdint cimport INT64_MAX, int64_t, uint32_t
from libc.string cimport memset

from nsqc.store.log.buffer cimport buffer_room
from nsqc.store.log.frame cimport DELAY_BYTES, MORE, Frame, frame_delays
from nsqc.store.log.index cimport index_note
from nsqc.store.log.segmenthead cimport FRAMES_AT
from nsqc.store.log.walk cimport Walk, walk_data, walk_free, walk_next, walk_open
from nsqc.wire.hton cimport load_i32, load_i64, store_i64

cdef enum:
    SCAN_BYTES = 1048576        # of a read


cdef int segment_scan(int fd, const SegmentHead *head, int64_t size, bint power_failed, int64_t now_ns,
                      Scanned *found) noexcept nogil:
    cdef int error = 0
    cdef int64_t durable = INT64_MAX
    memset(found, 0, sizeof(Scanned))
    if power_failed:
        error = walk_over(fd, head, size, durable, now_ns, found, True)
        durable = found.synced
    if error == 0:
        error = walk_over(fd, head, size, durable, now_ns, found, False)
    return error


cdef int walk_over(int fd, const SegmentHead *head, int64_t size, int64_t durable, int64_t now_ns, Scanned *found,
                   bint only_synced) noexcept nogil:
    """Up to the first hole at or behind `durable`. 0 or errno."""
    cdef Walk walk
    cdef int64_t records = 0, counted = 0
    cdef int answer
    walk_open(&walk, fd, head.salt, FRAMES_AT, size, head.first)
    walk.step = SCAN_BYTES
    found.position = FRAMES_AT
    found.end = head.first
    while True:
        answer = walk_next(&walk)
        if answer <= 0 or (walk.hole >= durable and not only_synced):
            break
        if walk.frame.synced <= walk.position:      # another value is that of a writer that is not ours
            found.synced = max(found.synced, walk.frame.synced)
        if only_synced:
            continue
        records += walk.frame.records
        index_note(&found.index, &walk.frame, walk.position)
        if walk.frame.delays:
            found.due_ns = max(found.due_ns, keep_delays(walk_data(&walk), &walk.frame, now_ns, &found.delays))
        if not walk.frame.flags & MORE:
            found.position = walk.next
            found.end = walk.frame.first + walk.frame.records
            counted = records
    found.damaged = found.end - head.first - counted
    walk_free(&walk)
    return -min(answer, 0)


cdef int64_t keep_delays(const char *c_frame, const Frame *frame, int64_t now_ns, Buffer *delays) noexcept nogil:
    """Keeps those that are ahead; the latest due time. Without memory they are delivered too early."""
    cdef const char *c_delay = frame_delays(c_frame, frame)
    cdef int64_t latest = 0, due_ns
    cdef uint32_t _index
    for _index in range(frame.delays):
        due_ns = load_i64(c_delay + 4)
        latest = max(latest, due_ns)
        if due_ns > now_ns and buffer_room(delays, LEFT_BYTES) == 0:
            store_i64(delays.c_data + delays.length, frame.first + <int64_t> <uint32_t> load_i32(c_delay))
            store_i64(delays.c_data + delays.length + 8, due_ns)
            store_i64(delays.c_data + delays.length + 16, <int64_t> <uint32_t> load_i32(c_delay + 12))
            delays.length += LEFT_BYTES
        c_delay += DELAY_BYTES
    return latest


cdef int segment_delays(int fd, const SegmentHead *head, int64_t limit, int64_t now_ns, Buffer *delays) noexcept nogil:
    cdef Walk walk
    cdef int answer = 1
    walk_open(&walk, fd, head.salt, FRAMES_AT, limit, head.first)
    walk.step = SCAN_BYTES
    while answer == 1:
        answer = walk_next(&walk)
        if answer == 1 and walk.frame.delays:
            keep_delays(walk_data(&walk), &walk.frame, now_ns, delays)
    walk_free(&walk)
    return -answer
