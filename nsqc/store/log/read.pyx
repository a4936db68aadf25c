"""Reads blocks of frames. See the .pxd."""

from libc.errno cimport EAGAIN
from libc.stdint cimport INT64_MIN, int64_t
from libc.string cimport memset
from posix.fcntl cimport O_RDONLY
from posix.unistd cimport close

from nsqc.store.disk.names cimport PATH_BYTES
from nsqc.store.disk.syscalls cimport io_open
from nsqc.store.log.buffer cimport buffer_free
from nsqc.store.log.frame cimport FRAME_HEAD, FRAME_SOUND, Frame, frame_check, frame_load, record_length
from nsqc.store.log.index cimport index_position
from nsqc.store.log.openfiles cimport close_counted, count_open, too_many_open
from nsqc.store.log.segmenthead cimport segment_path
from nsqc.store.log.walk cimport Walk, walk_open, walk_to

cdef extern from "<fcntl.h>" nogil:
    int posix_fadvise(int fd, long long offset, long long length, int advice)
    int POSIX_FADV_WILLNEED

cdef enum:
    AHEAD_BYTES = 4194304       # the kernel reads this far ahead after a read that had to wait


cdef void read_free(ReadFrames *job) noexcept nogil:
    buffer_free(&job.memory)
    job.length = 0
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
        count_open(job.keeps_open)
    job.error = -read_block(job)
    if not job.keeps_open:
        read_close(job)


cdef int read_block(ReadFrames *job) noexcept nogil:
    """0 or -errno."""
    cdef Walk walk
    cdef int answer
    walk_open(&walk, job.fd, job.salt, job.position, job.limit, job.first, job.end)
    walk.cached = job.cached
    walk.memory = job.memory        # reused
    walk.memory.length = 0
    walk.step = max(job.want, <int64_t> FRAME_HEAD)
    if job.position == 0 and job.cached:
        answer = -EAGAIN        # a thread has to read the index
    else:
        if job.position == 0:
            walk.next = index_position(job.fd, job.salt, job.offset, 0)
        answer = walk_to(&walk, job.offset, INT64_MIN)
    if answer == 1:
        take_block(job, &walk)
    elif answer == 0:
        job.damaged = job.end - job.offset      # no more frames
        job.begin = job.next = job.end
    job.memory = walk.memory
    return min(answer, 0)


cdef void take_block(ReadFrames *job, Walk *walk) noexcept nogil:
    """Takes the frame, and the following ones from the same read."""
    cdef Frame frame
    cdef int64_t have, next_ = walk.frame.first + walk.frame.records
    job.at = walk.position - walk.start
    job.begin = max(job.offset, walk.frame.first)
    job.damaged = job.begin - job.offset
    job.after = walk.next
    while next_ < job.end:
        have = walk.start + walk.memory.length - job.after
        if (frame_check(walk.memory.c_data + (job.after - walk.start), have, job.salt, job.after,
                        &frame) != FRAME_SOUND or frame.first != next_ or job.after + frame.length > job.limit):
            break
        job.after += frame.length
        next_ += frame.records
    job.next = min(next_, job.end)
    job.length = job.after - walk.position
    if not job.cached:
        posix_fadvise(job.fd, job.after, AHEAD_BYTES, POSIX_FADV_WILLNEED)


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


# ---------------------------------------------------------------------- on the loop

cdef void reader_release(Reader *reader) noexcept:
    if not reader.running:
        read_free(&reader.block)
        reader.block.want = 0
        memset(&reader.spot, 0, sizeof(Spot))


cdef void reader_forget(Reader *reader) noexcept:
    if reader.running:
        reader.stale = True
    else:
        reader.block.begin = reader.block.next = -1
        memset(&reader.spot, 0, sizeof(Spot))


cdef void file_lend(OpenFile *file, ReadFrames *job) noexcept:
    job.keeps_open = True
    job.fd = file.fd if file.first == job.first else -1


cdef bint file_return(OpenFile *file, ReadFrames *job, bint closed) noexcept:
    cdef bint sound = job.error == 0 or job.error == EAGAIN
    cdef int fd = job.fd
    job.keeps_open = False
    job.fd = -1
    if fd < 0:
        return False
    if fd == file.fd:
        if not sound:
            file_close(file)        # the next read opens the current file
        return False
    file_close(file)
    if closed or not sound or too_many_open():
        close_counted(&fd)
        return False
    file.first = job.first
    file.fd = fd
    return True


cdef void file_close(OpenFile *file) noexcept:
    close_counted(&file.fd)


cdef void file_removed(OpenFile *file, int64_t first) noexcept:
    if file.first < first:
        file_close(file)
