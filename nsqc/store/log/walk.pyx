"""A walk over frames. See the .pxd."""

from libc.errno cimport ENOMEM, EOPNOTSUPP
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memmove, memset

from nsqc.store.disk.syscalls cimport io_read, io_read_cached
from nsqc.store.log.buffer cimport Buffer, buffer_free, buffer_room
from nsqc.store.log.frame cimport (FRAME_ALIGN, FRAME_HEAD, FRAME_NONE, FRAME_SHORT, FRAME_SOUND, FRAME_UNKNOWN,
                                   FrameCheck, frame_check)

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
