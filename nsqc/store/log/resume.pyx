"""Records behind damage that no index entry points at. See the .pxd."""

from libc.stdint cimport int64_t
from libc.string cimport memset

from nsqc.store.disk.segment cimport BLOCK_BYTES, Window, segment_next
from nsqc.store.disk.syscalls cimport io_read
from nsqc.store.log.format cimport ENTRY_BYTES, INDEX_HEAD_BYTES, MOST_SEGMENT, IndexEntry, entry_load

cdef enum:
    ENTRIES_AT_ONCE = 1024  # of an index, in one read


cdef void window_open(Window *window) noexcept nogil:
    memset(window, 0, sizeof(window[0]))
    window.step = BLOCK_BYTES


cdef int resume(Torn *torn, int idx, int dat, int64_t first, int64_t next, int64_t size, Window *window,
                int64_t *offset, int64_t *position, int64_t *length) noexcept nogil:
    cdef int64_t begin = 0, lost = 0
    cdef bint known = is_torn(torn, offset[0])
    cdef int answer
    window.limit = torn.at if known else size
    answer = segment_next(window, dat, MOST_SEGMENT, position[0], &begin, length)
    if answer < 0:
        return answer
    if answer == 1 and begin == position[0]:
        return 1
    if known and offset[0] > torn.begin:
        lost = min(torn.lost, <int64_t> 1)
        torn.lost -= lost
    else:
        answer = measure(torn, idx, dat, first, next, size, window, offset[0], position[0], &lost)
        if answer < 0:
            return answer
        answer = position[0] < begin < torn.at
    offset[0] += lost
    position[0] = begin
    if answer == 0 or offset[0] >= torn.end:
        offset[0] = torn.end
        position[0] = torn.at
    return 0


cdef int measure(Torn *torn, int idx, int dat, int64_t first, int64_t next, int64_t size, Window *window,
                 int64_t offset, int64_t position, int64_t *lost) noexcept nogil:
    """Finds out where entries are sound again, and how many records on the way there are lost, so that those behind the
    damage keep their offsets: all of them here, if this is the only damage. Otherwise one here, as nothing says how
    many, and the rest where more is damaged, and at the end. 0 or -errno."""
    cdef int64_t begin = 0, length = 0, found = 0, gaps = 0, at = position
    cdef int answer = find_sound(torn, idx, first, next, size, offset + 1, position)
    torn.begin = offset
    window.limit = torn.at
    answer = 1 if answer == 0 else answer
    while answer == 1:
        answer = segment_next(window, dat, MOST_SEGMENT, at, &begin, &length)
        if answer == 1:
            found += 1
            gaps += begin > at
            at = begin + length
    if answer < 0:
        torn.end = torn.begin
        return answer
    gaps += at < torn.at
    torn.lost = max(torn.end - offset - found, <int64_t> 0)
    lost[0] = torn.lost if gaps == 1 else min(torn.lost, <int64_t> 1)
    torn.lost -= lost[0]
    return 0


cdef int find_sound(Torn *torn, int idx, int64_t first, int64_t next, int64_t size, int64_t offset,
                    int64_t behind) noexcept nogil:
    """Sets end and at to the next sound entry from an offset on, or the end of the segment. 0 or -errno."""
    cdef char[ENTRIES_AT_ONCE * ENTRY_BYTES] c_entries
    cdef IndexEntry entry
    cdef int64_t got = 1, count, at
    while offset < next and got > 0 and idx >= 0:
        count = min(next - offset, <int64_t> ENTRIES_AT_ONCE)
        got = io_read(idx, c_entries, count * ENTRY_BYTES, INDEX_HEAD_BYTES + (offset - first) * ENTRY_BYTES)
        if got < 0:
            return <int> got
        for at in range(got // ENTRY_BYTES):
            if entry_load(c_entries + at * ENTRY_BYTES, offset + at, &entry) and behind < entry.position <= size:
                torn.end = offset + at
                torn.at = entry.position
                return 0
        offset += count
    torn.end = next
    torn.at = size
    return 0
