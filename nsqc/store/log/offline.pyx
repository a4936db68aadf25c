"""Segments for tools: frames in order, headers, indexes. For Python: see the .pyi.

Reads without the GIL.
"""

cimport cython
from libc.errno cimport EOPNOTSUPP
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy, memset
from posix.fcntl cimport O_RDONLY
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize

import os

from nsqc.store.disk.segment cimport HEAD_BYTES, RECORD_ATTEMPTS_AT, RECORD_ID_AT, RECORD_TIMESTAMP_AT
from nsqc.store.disk.syscalls cimport io_read
from nsqc.store.guid cimport guid_after, guid_write
from nsqc.store.log.frame cimport DELAY_BYTES, FRAME_HEAD, RECORD_SIZE, record_length
from nsqc.store.log.index cimport Index, index_free, index_read
from nsqc.store.log.names import segment_path
from nsqc.store.log.read cimport position_of
from nsqc.store.log.recovery import LogError
from nsqc.store.log.segmenthead cimport COPY_AT, FRAMES_AT, HEAD_ROOM, HEAD_SOUND, SegmentHead, head_load
from nsqc.store.log.walk cimport Walk, walk_data, walk_free, walk_next, walk_open
from nsqc.wire.const cimport SIZE_BYTES
from nsqc.wire.hton cimport store_i32, store_i64, store_u16

cdef enum:
    HEADS_BYTES = 4096          # of a read that wants heads


@cython.final
cdef class FrameWalk:
    """See the .pyi."""

    cdef Walk walk
    cdef int fd
    cdef str path
    cdef int64_t ends           # the offset after the segment's last record
    cdef int64_t before         # after the frame before; -1: unknown
    cdef bint ended

    def __cinit__(self):
        self.fd = -1

    def __init__(self, str folder not None, segment, int64_t offset=0, bint heads=False):
        cdef int64_t first = segment[0], position = segment[2], begin = FRAMES_AT
        cdef uint64_t salt = segment[3]
        self.path = segment_path(folder, first)
        self.fd = os.open(self.path, O_RDONLY | os.O_CLOEXEC)
        self.ends = segment[1]
        self.before = first
        if offset > first:
            begin = position_of(self.fd, salt, offset)
            self.before = -1 if begin > FRAMES_AT else first
        walk_open(&self.walk, self.fd, salt, begin, position, first)
        if heads:
            self.walk.heads = True
            self.walk.step = HEADS_BYTES

    def __dealloc__(self):
        walk_free(&self.walk)
        if self.fd >= 0:
            os.close(self.fd)

    def step(self):
        """See the .pyi."""
        cdef int answer
        if self.walk.frame.records:
            self.before = self.walk.frame.first + self.walk.frame.records
        with nogil:
            answer = walk_next(&self.walk)
        if answer == -EOPNOTSUPP:
            raise LogError(0, "a later version has written it: use that, or move the folder away", self.path)
        if answer < 0:
            raise OSError(-answer, os.strerror(-answer), self.path)
        self.ended = answer == 0
        return not self.ended

    def reach(self, int64_t offset):
        """See the .pyi."""
        while self.ended or self.walk.frame.first + self.walk.frame.records <= offset:
            if self.ended or not self.step():
                return False
        return True

    @property
    def first(self):
        """See the .pyi."""
        return self.ends if self.ended else self.walk.frame.first

    @property
    def end(self):
        """See the .pyi."""
        return self.ends if self.ended else self.walk.frame.first + self.walk.frame.records

    @property
    def time_ns(self):
        """See the .pyi."""
        return self.walk.frame.time_ns

    @property
    def hole(self):
        """See the .pyi."""
        if self.walk.hole < 0 and self.lost:
            return self.walk.next if self.ended else self.walk.position     # it ends there, or skips offsets
        return self.walk.hole

    @property
    def lost(self):
        """See the .pyi."""
        return self.first - self.before if self.before >= 0 else 0

    @property
    def queue_bytes(self):
        """See the .pyi."""
        return (self.walk.frame.payload - <int64_t> self.walk.frame.delays * DELAY_BYTES
                + <int64_t> self.walk.frame.records * (HEAD_BYTES - RECORD_SIZE))

    def queue_records(self, int64_t first, int64_t end, int attempts):
        """See the .pyi."""
        cdef const char *c_record = walk_data(&self.walk) + FRAME_HEAD
        cdef const char *c_begin
        cdef int64_t index
        cdef char *c_to
        cdef bytes records
        if self.walk.heads or not self.first <= first <= end <= self.end:
            raise ValueError(f"offsets {first} to {end} are not in the frame")
        for _ in range(first - self.walk.frame.first):
            c_record += record_length(c_record)
        c_begin = c_record
        for _ in range(end - first):
            c_record += record_length(c_record)
        records = PyBytes_FromStringAndSize(
            NULL, (c_record - c_begin) + (end - first) * (HEAD_BYTES - RECORD_SIZE))
        c_to = PyBytes_AS_STRING(records)
        for index in range(first - self.walk.frame.first, end - self.walk.frame.first):
            c_to = self.put_record(c_to, c_begin, index, attempts)
            c_begin += record_length(c_begin)
        return records

    cdef char *put_record(self, char *c_to, const char *c_record, int64_t index, int attempts) noexcept:
        """Where the next one goes."""
        cdef int64_t size = record_length(c_record) - RECORD_SIZE
        store_i32(c_to, <int> (HEAD_BYTES - SIZE_BYTES + size))
        store_i64(c_to + RECORD_TIMESTAMP_AT, self.walk.frame.time_ns)
        store_u16(c_to + RECORD_ATTEMPTS_AT, attempts)
        guid_write(guid_after(self.walk.frame.id, index), c_to + RECORD_ID_AT)
        memcpy(c_to + HEAD_BYTES, c_record + RECORD_SIZE, <size_t> size)
        return c_to + HEAD_BYTES + size


def read_head(str path not None):
    """See the .pyi."""
    cdef char c_block[FRAMES_AT]
    cdef char c_alone[FRAMES_AT]
    cdef SegmentHead head
    cdef int64_t at, got
    cdef int sound = 0
    cdef int fd = os.open(path, O_RDONLY | os.O_CLOEXEC)
    memset(c_block, 0, FRAMES_AT)
    memset(&head, 0, sizeof(head))
    got = io_read(fd, c_block, FRAMES_AT, 0)
    os.close(fd)
    if got < 0:
        raise OSError(-got, os.strerror(-got), path)
    for at in (0, COPY_AT):
        memset(c_alone, 0, FRAMES_AT)
        memcpy(c_alone + at, c_block + at, HEAD_ROOM)
        sound += head_load(c_alone, &head) == HEAD_SOUND
    return sound, head.log_id, head.sequence, head.first


def has_index(str path not None, uint64_t salt):
    """See the .pyi."""
    cdef Index index
    cdef int fd = os.open(path, O_RDONLY | os.O_CLOEXEC)
    cdef bint found = index_read(&index, fd, salt) == 0
    os.close(fd)
    if found:
        index_free(&index)
    return found
