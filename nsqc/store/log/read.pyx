"""Reads blocks of frames, without the GIL. See the .pxd."""

from libc.errno cimport EAGAIN
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free
from posix.fcntl cimport O_RDONLY
from posix.unistd cimport close

from nsqc.store.disk.names cimport PATH_BYTES
from nsqc.store.disk.syscalls cimport io_open
from nsqc.store.log.frame cimport FRAME_HEAD, FRAME_SOUND, Frame, frame_check, frame_load, record_length
from nsqc.store.log.index cimport Index, IndexEntry, index_find, index_free, index_read
from nsqc.store.log.segmenthead cimport FRAMES_AT, segment_path
from nsqc.store.log.walk cimport Walk, walk_next, walk_open

cdef extern from "<fcntl.h>" nogil:
    int posix_fadvise(int fd, long long offset, long long length, int advice)
    int POSIX_FADV_WILLNEED

cdef enum:
    HOP_BYTES = 4096            # of a read that wants a head
    AHEAD_BYTES = 4194304       # that the kernel is asked to read ahead after a read that had to wait

cdef long allocated = 0         # blocks that exist now

cdef extern from *:
    """
    #define NSQC_ADD(counter, n) __atomic_fetch_add(&(counter), (n), __ATOMIC_RELAXED)
    """
    void NSQC_ADD(long counter, long n) nogil


cdef void read_free(ReadFrames *job) noexcept nogil:
    NSQC_ADD(allocated, -(job.c_data is not NULL))
    free(job.c_data)
    job.c_data = NULL
    job.room = job.length = 0
    job.begin = job.next = -1


cdef void read_close(ReadFrames *job) noexcept nogil:
    if job.fd >= 0:
        close(job.fd)
    job.fd = -1


cdef void run_read(Job *c_job) noexcept nogil:
    cdef ReadFrames *job = <ReadFrames *> c_job
    cdef char c_path[PATH_BYTES]
    job.begin = job.next = job.offset
    job.damaged = job.length = job.error = 0
    if not job.keeps_open or job.fd < 0:
        segment_path(c_path, job.c_folder, job.first)
        job.fd = io_open(c_path, O_RDONLY)
        if job.fd < 0:
            job.error = -job.fd
            job.fd = -1
            return
    job.error = -read_block(job)
    if not job.keeps_open:
        read_close(job)


cdef int read_block(ReadFrames *job) noexcept nogil:
    """0 or -errno."""
    cdef Walk walk
    cdef int answer
    walk_open(&walk, job.fd, job.salt, job.position, job.limit, job.first)
    walk.cached = job.cached
    walk.c_data = job.c_data        # its memory is used again
    walk.room = job.room
    answer = 0 if job.position else find_start(job, &walk)
    if answer == 0:
        answer = hop_to(job, &walk)
    if answer == 0:
        walk.step = max(job.want, <int64_t> FRAME_HEAD)
        answer = walk_next(&walk)
        if answer == 1:
            take_block(job, &walk)
        elif answer == 0:
            job.damaged = job.end - job.offset      # nothing follows
            job.begin = job.next = job.end
    NSQC_ADD(allocated, (walk.c_data is not NULL) - (job.c_data is not NULL))
    job.c_data = walk.c_data
    job.room = walk.room
    return min(answer, 0)


cdef int find_start(ReadFrames *job, Walk *walk) noexcept nogil:
    """0 or -errno."""
    if job.cached:
        return -EAGAIN      # looking for it may be long: a thread does that
    walk.next = position_of(job.fd, job.salt, job.offset)
    return 0 if walk.next > 0 else <int> walk.next


cdef int64_t position_of(int fd, uint64_t salt, int64_t offset) noexcept nogil:
    cdef Index index
    cdef const IndexEntry *entry
    cdef int64_t position = FRAMES_AT
    if index_read(&index, fd, salt) == 0:
        entry = index_find(&index, offset)
        if entry is not NULL:
            position = entry.position
        index_free(&index)
    return position


cdef int hop_to(ReadFrames *job, Walk *walk) noexcept nogil:
    """Goes to the frame that has the offset, or the first one behind it; 0 or -errno."""
    cdef int answer
    walk.heads = True
    walk.step = HOP_BYTES
    while True:
        answer = walk_next(walk)
        if answer <= 0:
            break
        if walk.frame.first + walk.frame.records > job.offset:
            walk.next = walk.position
            walk.least = 0
            walk.length = 0         # read again, with all that is wanted behind it
            break
    walk.heads = False
    return min(answer, 0)


cdef void take_block(ReadFrames *job, Walk *walk) noexcept nogil:
    """The frame, and those behind it that have been read with it."""
    cdef Frame frame
    cdef int64_t have, next_ = walk.frame.first + walk.frame.records
    job.at = walk.position - walk.start
    job.begin = max(job.offset, walk.frame.first)
    job.damaged = job.begin - job.offset
    job.behind = walk.next
    while next_ < job.end:
        have = walk.start + walk.length - job.behind
        if (frame_check(walk.c_data + (job.behind - walk.start), have, job.salt, job.behind, &frame) != FRAME_SOUND
                or frame.first != next_ or job.behind + frame.length > job.limit):
            break
        job.behind += frame.length
        next_ += frame.records
    job.next = min(next_, job.end)
    job.length = job.behind - walk.position
    if not job.cached:
        posix_fadvise(job.fd, job.behind, AHEAD_BYTES, POSIX_FADV_WILLNEED)


cdef const char *spot_find(Spot *spot, const char *c_data, int64_t offset) noexcept nogil:
    cdef int64_t target
    if spot.frame.records == 0 or offset < spot.frame.first:
        spot.at = 0
        enter(spot, c_data)
    while offset >= spot.frame.first + spot.frame.records:
        spot.at += spot.frame.length
        enter(spot, c_data)
    target = offset - spot.frame.first
    if target < spot.index:
        spot.index = 0
        spot.record_at = spot.at + FRAME_HEAD
    while spot.index < target:
        spot.record_at += record_length(c_data + spot.record_at)
        spot.index += 1
    return c_data + spot.record_at


cdef inline void enter(Spot *spot, const char *c_data) noexcept nogil:
    frame_load(c_data + spot.at, &spot.frame)
    spot.index = 0
    spot.record_at = spot.at + FRAME_HEAD


def alive() -> int:
    """Blocks of frames that exist now."""
    return allocated
