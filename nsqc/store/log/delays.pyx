"""Due times of deferred messages. See the .pxd."""

from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free
from libc.string cimport memset

from nsqc.store.log.array cimport array_below, queue_room
from nsqc.store.log.frame cimport Frame

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
