"""Due times of deferred messages. See the .pxd."""

from libc.stdint cimport int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove, memset

from nsqc.store.log.format cimport DUE_BYTES, DueEntry, due_load, due_store

cdef enum:
    FIRST_DELAYS = 64
    NS_PER_MS = 1000000


cdef void delays_add(Delays *delays, const char *c_from, int64_t length, int64_t end, int64_t longest_ns,
                     Clock clock) noexcept:
    """Damaged ones and those at the end of the log or behind it count for nothing."""
    cdef int64_t at = 0
    cdef DueEntry entry
    while at + DUE_BYTES <= length:
        if due_load(c_from + at, &entry) and entry.offset < end:
            add(delays, &entry, longest_ns, clock)
        at += DUE_BYTES


cdef void add(Delays *delays, DueEntry *entry, int64_t longest_ns, Clock clock) noexcept:
    """A message without an entry is only delivered too early. One that the clock has jumped away from since it was
    published waits for the delay that was asked for, and not until the clock comes there."""
    cdef int64_t delay_ns = min(entry.due_ns - clock.wall, <int64_t> entry.delay_ms * NS_PER_MS if entry.delay_ms
                                else longest_ns)
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
    delays.items[delays.first + delays.count].offset = entry.offset
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


cdef void due_rebase(LogBuf *due, int64_t less) noexcept:
    cdef int64_t at = 0
    cdef DueEntry entry
    while at < due.length:
        due_load(due.c_data + at, &entry)
        entry.offset -= less
        due_store(due.c_data + at, &entry)
        at += DUE_BYTES
