"""A log (nsqc.store.log) and the table of publish ids, driven from Python."""

import os

from libc.stdint cimport INT64_MAX, int64_t, uint64_t
from libc.stdlib cimport calloc
from libc.string cimport memset

from nsqc.store.log.frame cimport (DELAY_BYTES, FRAME_HEAD, RECORD_SIZE, Frame, Frames, Walk, frame_check, frames_add,
                                   frames_add_batch, frames_add_id, frames_close, frames_free, frames_seal,
                                   record_length, walk_data, walk_free, walk_next, walk_open)
from nsqc.store.log.journal cimport (Compaction, compact_clean, compact_place, compact_write, compaction_free,
                                     files_add, files_free_number, files_load, journal_number)
from nsqc.store.log.positions cimport (Deferred, DeferredHeap, JournalState, OffsetSet, Range, RangeWalk,
                                       deferred_first, deferred_free, deferred_pop, deferred_push, deferred_take,
                                       offsets_add, offsets_free, offsets_from, offsets_have, offsets_next,
                                       offsets_put, offsets_remove, state_free)
from nsqc.store.message cimport GuidFactory
from nsqc.store.publishids cimport PublishId, PublishIds
from nsqc.wire.hton cimport load_i32, load_i64


# ====================================================================== logframes


cdef class Collector:
    """The frames that frame.pxd collects."""

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


# ====================================================================== compaction


def compact_folder(str folder not None, int steps=3):
    """Replaces the journal of a folder by one file, or runs this many steps of that. Raises OSError."""
    cdef bytes c_folder = os.fsencode(folder)
    cdef Compaction *job = <Compaction *> calloc(1, sizeof(Compaction))
    cdef int64_t number
    cdef JournalState state
    if job is NULL:
        raise MemoryError
    job.c_folder = c_folder
    try:
        for name in os.listdir(folder):
            number = journal_number(os.fsencode(name))
            if number and files_add(&job.files, number):
                raise MemoryError
        memset(&state, 0, sizeof(state))
        job.error = files_load(&job.files, &state, job.c_folder)
        state_free(&state)
        job.file.number = files_free_number(&job.files, job.files.last.number + 1)
        if job.error == 0:
            compact_write(job)
        if job.error == 0 and steps > 1:
            compact_place(job)
        if job.error == 0 and steps > 2:
            compact_clean(job)
        if job.error:
            raise OSError(job.error, os.strerror(job.error), folder)
    finally:
        compaction_free(job)


# ====================================================================== offsets


cdef class Offsets:
    """A set of offsets."""

    cdef OffsetSet set

    def __dealloc__(self):
        offsets_free(&self.set)

    def __contains__(self, int64_t offset):
        return offsets_have(&self.set, offset)

    def add(self, int64_t first, int64_t end):
        """Adds a range."""
        if offsets_add(&self.set, first, end) < 0:
            raise MemoryError

    def put(self, int64_t first, int64_t end, int attempts, int64_t due_ns):
        """The same for waiting messages."""
        cdef Range added
        added.first, added.end, added.attempts, added.due_ns = first, end, attempts, due_ns
        if offsets_put(&self.set, &added) < 0:
            raise MemoryError

    def remove(self, int64_t first, int64_t end):
        """Removes a range."""
        if offsets_remove(&self.set, first, end) < 0:
            raise MemoryError

    def ranges(self, int64_t first=-1) -> list:
        """(first, end, attempts, due) of each range; with an offset, only ranges that reach past it."""
        cdef RangeWalk walk = offsets_from(&self.set, first)
        cdef Range *found = offsets_next(&self.set, &walk)
        listed = []
        while found is not NULL:
            listed.append((found.first, found.end, found.attempts, found.due_ns))
            found = offsets_next(&self.set, &walk)
        return listed

    def clear(self):
        """Removes all."""
        offsets_free(&self.set)


# ====================================================================== waiting


cdef class Heap:
    """Messages by due time."""

    cdef DeferredHeap heap

    def __dealloc__(self):
        deferred_free(&self.heap)

    def __len__(self):
        return self.heap.count

    def push(self, int64_t due_ns, int64_t offset):
        """Adds one."""
        cdef Deferred item
        item.due_ns = due_ns
        item.offset = offset
        item.attempts = 0
        if deferred_push(&self.heap, &item) < 0:
            raise MemoryError

    def first(self):
        """(due_ns, offset) of the first; None: there is none."""
        cdef Deferred *item = deferred_first(&self.heap)
        return None if item is NULL else (item.due_ns, item.offset)

    def pop(self):
        """Removes the first."""
        deferred_pop(&self.heap)

    def take(self, int64_t at):
        """Removes the one at an index."""
        deferred_take(&self.heap, at)

    def items(self) -> list:
        """(due_ns, offset) of all, by index."""
        return [(self.heap.items[at].due_ns, self.heap.items[at].offset) for at in range(self.heap.count)]


# ====================================================================== publishids


cdef class Ids:
    """PublishIds with times in seconds, one commit at a time."""

    cdef readonly PublishIds table
    cdef int64_t serial

    def __init__(self, double window, int64_t limit):
        self.table = PublishIds(<int64_t> (window * 1e9), limit, b"k" * 16)
        self.serial = 1

    def claim(self, bytes id not None, double now) -> tuple:
        """(IdVerdict, number)."""
        cdef PublishId hashed
        cdef int64_t number = 0
        self.table.hash(id, len(id), &hashed)
        verdict = self.table.claim(&hashed, <int64_t> (now * 1e9), self.serial, &number)
        return verdict, number

    def keep(self, int64_t number):
        self.table.keep(number)

    def collect(self, int64_t number):
        self.table.keep_if_collected(number, self.serial)

    def release(self, int64_t number):
        self.table.release(number)

    def begin(self):
        self.serial += 1
        self.table.commit_began()

    def end(self, int error):
        self.table.commit_ended(error)

    def expire(self, double now, int64_t most) -> bool:
        return self.table.expire(<int64_t> (now * 1e9), most)

    def memory(self) -> int:
        return self.table.memory()

    @property
    def length(self) -> int:
        """Size of the ring, in entries."""
        return self.table.next - self.table.first
