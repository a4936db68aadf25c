"""Due times of deferred messages. See the .pxd."""

from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove, memset

from nsqc.store.log.frame cimport DELAY_BYTES, Frame, frame_delays
from nsqc.wire.hton cimport load_i32, load_i64

cdef enum:
    FIRST_DELAYS = 64
    NS_PER_MS = 1000000


cdef void delays_add(Delays *delays, const char *c_frame, const Frame *frame, int64_t end, int64_t longest_ns,
                     Clock clock) noexcept:
    cdef const char *c_delay = frame_delays(c_frame, frame)
    cdef int64_t offset, asked_ns
    cdef uint32_t _index
    for _index in range(frame.delays):
        offset = frame.first + <int64_t> <uint32_t> load_i32(c_delay)
        asked_ns = <int64_t> <uint32_t> load_i32(c_delay + 12) * NS_PER_MS
        if offset < min(end, frame.first + frame.records):
            add(delays, offset, min(load_i64(c_delay + 4) - clock.wall, asked_ns, longest_ns), clock)
        c_delay += DELAY_BYTES


cdef void delay_left(Delays *delays, const char *c_left, int64_t longest_ns, Clock clock) noexcept:
    add(delays, load_i64(c_left), min(load_i64(c_left + 8) - clock.wall, load_i64(c_left + 16) * NS_PER_MS, longest_ns),
        clock)


cdef void add(Delays *delays, int64_t offset, int64_t delay_ns, Clock clock) noexcept:
    """One that the clock has jumped away from since it was published waits for the delay that was asked for, and not
    until the clock comes there. Without memory a message is delivered too early."""
    cdef Delay *grown
    cdef int64_t room
    if delay_ns <= 0:
        return
    if delays.first + delays.count == delays.room:
        if delays.first > delays.count:
            memmove(delays.items, delays.items + delays.first, <size_t> delays.count * sizeof(Delay))
            delays.first = 0
        else:
            room = max(delays.room + delays.room // 2, <int64_t> FIRST_DELAYS)
            grown = <Delay *> realloc(delays.items, <size_t> room * sizeof(Delay))
            if grown is NULL:
                return
            delays.items = grown
            delays.room = room
    delays.items[delays.first + delays.count].offset = offset
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
    """The index of the first at or behind an offset."""
    cdef int64_t low = delays.first, high = delays.first + delays.count, middle
    while low < high:
        middle = (low + high) // 2
        if delays.items[middle].offset < offset:
            low = middle + 1
        else:
            high = middle
    return low
