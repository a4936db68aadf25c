# A walk over the frames of a segment, in order. Only valid frames count, and only this module finds the next one.
# Needs no GIL.

from libc.stdint cimport int64_t, uint64_t

from nsqc.store.log.buffer cimport Buffer
from nsqc.store.log.frame cimport Frame


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
