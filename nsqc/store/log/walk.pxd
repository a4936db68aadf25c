# A walk over the frames of a segment, in order. Valid frames count and nothing else does; this is the only place that
# finds the next one. Nothing here needs the GIL.

from libc.stdint cimport int64_t, uint64_t

from nsqc.store.log.buffer cimport Buffer
from nsqc.store.log.frame cimport Frame


cdef struct Walk:
    # Set by walk_open().
    int fd                  # borrowed
    uint64_t salt
    int64_t limit           # where the frames of the segment end, or its file
    int64_t least           # no frame begins with a lower offset: the offset after the frame before
    int64_t step            # bytes of a read, unless a frame needs more
    bint cached             # reads only what the page cache has; otherwise the answer is -EAGAIN
    bint heads              # payloads are neither read nor checked
    # What is in memory.
    Buffer memory           # owned
    int64_t start           # position of its first byte
    # The result.
    Frame frame
    int64_t position        # of the frame
    int64_t next            # where the next one is looked for
    int64_t hole            # where damage before the frame, or before the end, begins; -1: there is none

cdef void walk_open(Walk *walk, int fd, uint64_t salt, int64_t position, int64_t limit, int64_t least) noexcept nogil
# 1: walk.frame lies at walk.position, and whole at walk_data() unless only heads are read; 0: there are no more;
# -errno: of a read, ENOMEM, or EOPNOTSUPP for a frame that only a later version knows.
cdef int walk_next(Walk *walk) noexcept nogil
cdef void walk_free(Walk *walk) noexcept nogil
# Hops over heads to the first frame that ends after an offset and is no older than a time, and then reads that frame
# whole, with the frames that follow it up to walk.step bytes. Returns what walk_next() does.
cdef int walk_to(Walk *walk, int64_t offset, int64_t time_ns) noexcept nogil
cdef inline const char *walk_data(const Walk *walk) noexcept nogil:
    return walk.memory.c_data + (walk.position - walk.start)
