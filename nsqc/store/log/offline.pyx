"""Reads frames, headers and indexes for checks of segments. For Python: see the .pyi."""

from libc.errno cimport EOPNOTSUPP
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memset
from posix.fcntl cimport O_RDONLY
from posix.unistd cimport close

import os

from nsqc.store.disk.segment cimport HEAD_BYTES
from nsqc.store.disk.syscalls cimport io_read
from nsqc.store.log.frame cimport RECORD_SIZE, frame_records
from nsqc.store.log.index cimport Index, index_free, index_read
from nsqc.store.log.recovery import LogError
from nsqc.store.log.segmenthead cimport COPY_AT, FRAMES_AT, HEAD_SOUND, SegmentHead, head_load
from nsqc.store.log.walk cimport Walk, walk_free, walk_next, walk_open


cdef int opened(str path) except -1:
    return os.open(path, O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


def read_frames(str path not None, segment):
    """See the .pyi."""
    cdef int64_t first = segment[0], end = segment[1], at = first, next_, records = 0, size = 0
    cdef int answer = 1
    cdef Walk walk
    cdef int fd = opened(path)
    damage = []
    walk_open(&walk, fd, segment[3], FRAMES_AT, segment[2], first, end)
    try:
        while answer == 1:
            with nogil:
                answer = walk_next(&walk)
                while answer == 1 and walk.hole < 0 and walk.frame.first == at:
                    at += walk.frame.records
                    records += walk.frame.records
                    size += queue_bytes(&walk)
                    answer = walk_next(&walk)
            next_ = walk.frame.first if answer == 1 else end
            if walk.hole >= 0 or next_ > at:
                damage.append((walk.hole if walk.hole >= 0 else walk.position if answer == 1 else walk.next, at, next_))
            if answer == 1:
                at = next_ + walk.frame.records
                records += walk.frame.records
                size += queue_bytes(&walk)
    finally:
        walk_free(&walk)
        close(fd)
    if answer == -EOPNOTSUPP:
        raise LogError(0, "a later version has written it: use that, or move the folder away", path)
    if answer < 0:
        raise OSError(-answer, os.strerror(-answer), path)
    return records, size, damage


cdef inline int64_t queue_bytes(const Walk *walk) noexcept nogil:
    """Of the records of a frame, in a disk queue."""
    return frame_records(&walk.frame) + <int64_t> walk.frame.records * (HEAD_BYTES - RECORD_SIZE)


def read_head(str path not None):
    """See the .pyi."""
    cdef char c_block[FRAMES_AT]
    cdef SegmentHead head
    cdef int64_t got
    cdef int sound
    cdef int fd = opened(path)
    memset(c_block, 0, FRAMES_AT)
    memset(&head, 0, sizeof(head))
    got = io_read(fd, c_block, FRAMES_AT, 0)
    close(fd)
    if got < 0:
        raise OSError(-got, os.strerror(-got), path)
    sound = head_load(c_block, &head) == HEAD_SOUND
    sound += head_load(c_block + COPY_AT, &head) == HEAD_SOUND
    return sound, head.log_id, head.sequence, head.first


def has_index(str path not None, uint64_t salt):
    """See the .pyi."""
    cdef Index index
    cdef int fd = opened(path)
    cdef bint found = index_read(&index, fd, salt) == 0
    close(fd)
    if found:
        index_free(&index)
    return found
