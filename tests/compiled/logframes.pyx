"""Frames of a log, for tests: collected, written to a file, and walked."""

import os

from libc.stdint cimport INT64_MAX, int64_t, uint64_t
from libc.string cimport memset

from nsqc.store.log.frame cimport (DELAY_BYTES, FRAME_HEAD, RECORD_SIZE, Frame, Frames, Walk, frame_check, frames_add,
                                   frames_add_batch, frames_add_id, frames_close, frames_free, frames_seal,
                                   record_length, walk_data, walk_free, walk_next, walk_open)
from nsqc.store.message cimport GuidFactory
from nsqc.wire.hton cimport load_i32, load_i64


cdef class Collector:
    """The frames that frames.pxd collects."""

    cdef Frames frames
    cdef GuidFactory guids

    def __init__(self, GuidFactory guids not None):
        self.guids = guids

    def __dealloc__(self):
        frames_free(&self.frames)

    def add(self, bytes body not None, int64_t wall_ns, int defer_ms=0):
        assert frames_add(&self.frames, self.guids, wall_ns, body, <unsigned> len(body), <unsigned> defer_ms, NULL,
                          0) == 0

    def add_dead(self, bytes body not None, bytes origin not None, int64_t wall_ns):
        assert frames_add(&self.frames, self.guids, wall_ns, body, <unsigned> len(body), 0, origin,
                          <unsigned> len(origin)) == 0

    def add_id(self, bytes hash not None):
        frames_add_id(&self.frames, hash)

    def add_batch(self, bytes payload not None, int64_t records, int64_t wall_ns):
        assert frames_add_batch(&self.frames, self.guids, wall_ns, payload, len(payload), records, 0) == 0

    def sealed(self, uint64_t salt, int64_t position, int64_t first, int64_t synced):
        """The bytes to write, and the offset after them; starts over."""
        cdef int64_t latest = 0
        frames_close(&self.frames, self.guids)
        end = frames_seal(self.frames.out.c_data, self.frames.out.length, salt, position, first, synced, &latest,
                          &latest)
        data = self.frames.out.c_data[:self.frames.out.length]
        frames_free(&self.frames)
        return data, end


def check(bytes data not None, uint64_t salt, int64_t position):
    """The result of frame_check() for the bytes at a position."""
    cdef Frame frame
    memset(&frame, 0, sizeof(frame))
    return int(frame_check(data, len(data), salt, position, &frame)), frame.length


def walk(str path not None, uint64_t salt, int64_t position, int64_t limit, int64_t base, bint heads=False,
         int64_t step=0):
    """The frames of a file: (position, first offset, bodies, delays, flags, hole before); then (None, hole at the
    end)."""
    cdef Walk walk_
    cdef int answer
    cdef int fd = os.open(path, os.O_RDONLY)
    found = []
    walk_open(&walk_, fd, salt, position, limit, base, INT64_MAX)
    walk_.heads = heads
    if step:
        walk_.step = step
    try:
        while True:
            answer = walk_next(&walk_)
            if answer < 0:
                raise OSError(-answer, os.strerror(-answer))
            if answer == 0:
                return [*found, (None, walk_.hole)]
            bodies, delays = ([], []) if heads else records_of(&walk_)
            found.append((walk_.position, walk_.frame.first, bodies, delays, walk_.frame.flags, walk_.hole))
    finally:
        walk_free(&walk_)
        os.close(fd)


cdef tuple records_of(Walk *walk_):
    cdef const char *c_record = walk_data(walk_) + FRAME_HEAD
    bodies, delays = [], []
    for _ in range(walk_.frame.records):
        bodies.append(c_record[RECORD_SIZE:record_length(c_record)])
        c_record += record_length(c_record)
    for _ in range(walk_.frame.delays):
        delays.append((load_i32(c_record), load_i64(c_record + 4), load_i32(c_record + 12)))
        c_record += DELAY_BYTES
    return bodies, delays


def next_id(GuidFactory guids not None, int64_t wall_ns):
    """The id of the next message, as text."""
    cdef char c_id[16]
    guids.next(wall_ns, c_id)
    return c_id[:16].decode()
