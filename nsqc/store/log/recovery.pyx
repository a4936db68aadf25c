"""Logs at a start. See the .pxd."""

cimport cython
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from cpython.bytes cimport PyBytes_AS_STRING

import os
from collections import namedtuple

from nsqc.store.log.delays cimport delay_left
from nsqc.store.log.earlier cimport make_earlier
from nsqc.store.log.found cimport (FOUND_ERROR, FOUND_OLD_FORMAT, FOUND_UNKNOWN, FoundSegment, folder_find,
                                   found_free)
from nsqc.store.log.index cimport Index
from nsqc.store.log.logstate cimport LogState
from nsqc.store.log.losses cimport losses_found
from nsqc.store.log.scan cimport LEFT_BYTES
from nsqc.store.log.segmenthead cimport FRAMES_AT, lost_before
from nsqc.store.log.segments cimport Segment, segments_add, segments_reserve
from nsqc.store.log import names
from nsqc.wire.hton cimport load_i64

cdef extern from *:
    """
    #define NSQC_TAKE(place, from, to) __sync_bool_compare_and_swap(&(place), (from), (to))
    #define NSQC_LOAD(place) __atomic_load_n(&(place), __ATOMIC_ACQUIRE)
    #define NSQC_STORE(place, value) __atomic_store_n(&(place), (value), __ATOMIC_RELEASE)
    #define NSQC_NEXT(place) __atomic_fetch_add(&(place), 1, __ATOMIC_RELAXED)
    """
    bint NSQC_TAKE(int place, int before, int after) nogil
    int NSQC_LOAD(int place) nogil
    void NSQC_STORE(int place, int value) nogil
    int64_t NSQC_NEXT(int64_t place) nogil

cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef enum:
    WAITS = 0                   # steps of a look
    RUNS = 1
    DONE = 2


class LogError(OSError):
    """A folder that cannot be used; its files stay as they are."""


class SegmentState(namedtuple("SegmentState", "first end position salt sequence size made_ns last_ns lost damaged")):
    """See the .pyi."""

    __slots__ = ()

    @property
    def bounds(self) -> tuple:
        """As TopicLog has them."""
        return self[:4]

    @property
    def bytes(self) -> int:
        """Of its frames."""
        return self.position - FRAMES_AT


@cython.final
cdef class Opened:
    """A log that is about to be used."""

    def __dealloc__(self):
        found_free(&self.found)

    @property
    def id(self) -> int:
        """0: it has none."""
        if self.found.has_manifest:
            return self.found.manifest.log_id
        return self.found.items[self.found.count - 1].head.log_id if self.found.count else 0

    @property
    def has_manifest(self) -> bool:
        """Whether there is one, and it is sound."""
        return self.found.has_manifest

    @property
    def has_ids(self) -> bool:
        """Whether there are ids of publishes: see idjournal.pxd."""
        return self.found.has_ids

    @property
    def clean(self) -> bool:
        """Whether nothing was written since a stop or a start."""
        return self.found.clean

    @property
    def segments(self) -> list:
        """SegmentState of each, oldest first."""
        cdef FoundSegment *segment
        cdef int64_t at, before = 0
        found = []
        for at in range(self.found.count):
            segment = &self.found.items[at]
            lost = max(segment.head.before_records - before, 0) if at else lost_before(&segment.head)
            before = segment.head.before_records + segment.end - segment.head.first
            found.append(SegmentState(segment.head.first, segment.end, segment.position, segment.head.salt,
                                      segment.head.sequence, segment.size, segment.head.made_ns, segment.last_ns, lost,
                                      segment.damaged))
        return found

    @property
    def delays(self) -> list:
        """(offset, due time in nanoseconds since 1970) of delayed messages whose time has not come."""
        cdef int64_t at
        return [(load_i64(self.found.delays.c_data + at), load_i64(self.found.delays.c_data + at + 8))
                for at in range(0, self.found.delays.length, LEFT_BYTES)]


cdef Opened make_opened(Found *found, str folder):
    """Takes what was found. Raises LogError."""
    cdef Opened opened = Opened.__new__(Opened)
    cdef FoundSegment *last
    opened.found = found[0]
    memset(found, 0, sizeof(Found))
    raise_refusal(&opened.found, folder)
    opened.earlier = make_earlier(&opened.found.state, &opened.found.cursors)
    if opened.found.count:
        last = &opened.found.items[opened.found.count - 1]
        opened.next = last.end
    else:
        opened.next = opened.earlier.topic_cursor or 0
    opened.resume_at = max(opened.next, opened.found.manifest.resume)
    if opened.earlier.reached < names.MOST_OFFSET:
        opened.resume_at = max(opened.resume_at, opened.earlier.reached)
    if opened.found.lost_newest:
        opened.lost = max(1, opened.resume_at - opened.next)
        if opened.found.manifest.end_size:
            opened.lost = max(opened.lost, opened.found.manifest.end - opened.found.manifest.newest_first)
        opened.resume_at = max(opened.resume_at, opened.found.manifest.reserved)
    elif opened.found.count and opened.resume_at == opened.earlier.reached:
        opened.had = opened.resume_at - opened.next
    return opened


cdef int raise_refusal(Found *found, str folder) except -1:
    where = f"{folder}/{found.bad_first:020d}.log" if found.bad_first >= 0 else folder
    if found.reason == FOUND_OLD_FORMAT:
        raise LogError(0, "it has a log in a format that no release has written: move the folder away, or read it with "
                          "the version that made it", folder)
    if found.reason == FOUND_UNKNOWN:
        raise LogError(0, "a later version has written it: use that, or move the folder away", where)
    if found.reason == FOUND_ERROR:
        raise OSError(found.error, os.strerror(found.error), where)
    return 0


def read_folder(str folder not None):
    """What a folder has, for tools: nothing is written. Raises OSError."""
    cdef Found found
    cdef bytes name = os.fsencode(folder)
    cdef const char *c_folder = PyBytes_AS_STRING(name)
    with nogil:
        folder_find(&found, c_folder, False, False)
    try:
        return make_opened(&found, folder)
    finally:
        found_free(&found)


def enter(LogState log not None, Opened opened not None):
    """Gives a log that was made for it what a folder has."""
    cdef Found *found = &opened.found
    cdef FoundSegment *seen
    cdef Segment segment
    cdef int64_t at
    if segments_reserve(&log.segments, found.count) < 0:
        raise MemoryError
    for at in range(found.count):
        seen = &found.items[at]
        memset(&segment, 0, sizeof(segment))
        segment.first, segment.end, segment.position = seen.head.first, seen.end, seen.position
        segment.before = seen.head.before_records
        segment.lost = 0 if at else lost_before(&seen.head)
        segment.sequence, segment.salt = seen.head.sequence, seen.head.salt
        segment.last_ns, segment.due_ns = seen.last_ns, seen.due_ns
        segment.time_ns = seen.time_ns
        segments_add(&log.segments, &segment)
        if seen.damaged:
            log.damaged += seen.damaged
            log.damage.append((segment.first, segment.end))
    log_id = log.manifest.log_id
    log.manifest = found.manifest
    log.manifest.log_id = opened.id or log_id
    log.lost = opened.lost + opened.had
    log.index = found.index
    memset(&found.index, 0, sizeof(Index))
    log.next = log.visible = log.tail_first = opened.next
    log.resume_at = opened.resume_at
    log.ends = not found.clean or found.count == 0 or log.resume_at > log.next
    if found.count:
        log.unsynced_files.synced = first_unsynced(found)
        log.durable_to = found.synced
    if log.damaged or log.lost or log.segments.missing:
        losses_found(log)
    log.clock.refresh()
    for at in range(0, found.delays.length, LEFT_BYTES):
        delay_left(&log.delays, found.delays.c_data + at, log.longest_delay_ns, log.clock)


cdef int64_t first_unsynced(Found *found) noexcept:
    """The first offset of the first segment that may not be durable, as the newest one says."""
    cdef FoundSegment *last = &found.items[found.count - 1]
    cdef int64_t at
    for at in range(found.count):
        if found.items[at].head.sequence >= last.head.durable_from:
            return found.items[at].head.first
    return last.head.first


@cython.final
cdef class Looks:
    """Looks at folders."""

    def __init__(self, list folders not None, bint power_failed):
        """folders: as os.fsencode() has them. power_failed: since they were used last."""
        self.folders = folders
        self.power_failed = power_failed
        self.count = len(folders)
        self.index = {folder: index for index, folder in enumerate(folders)}
        self.found = <Found *> calloc(<size_t> max(self.count, <int64_t> 1), sizeof(Found))
        self.steps = <int *> calloc(<size_t> max(self.count, <int64_t> 1), sizeof(int))
        if self.found is NULL or self.steps is NULL:
            raise MemoryError

    def __dealloc__(self):
        cdef int64_t index
        if self.found is not NULL:
            for index in range(self.count):
                found_free(&self.found[index])
        free(self.found)
        free(self.steps)

    def run(self):
        """For a thread: looks at folders that nobody has begun to look at, until there are none."""
        cdef const char *c_folder
        cdef int64_t index
        while True:
            index = NSQC_NEXT(self.next)
            if index >= self.count:
                return
            if NSQC_TAKE(self.steps[index], WAITS, RUNS):
                c_folder = PyBytes_AS_STRING(self.folders[index])
                with nogil:
                    folder_find(&self.found[index], c_folder, self.power_failed, True)
                    NSQC_STORE(self.steps[index], DONE)

    def take(self, bytes folder not None):
        """What a folder has, once. Raises OSError."""
        cdef int64_t index = self.index.pop(folder)
        cdef const char *c_folder = PyBytes_AS_STRING(folder)
        cdef Found *found = &self.found[index]
        with nogil:
            if NSQC_TAKE(self.steps[index], WAITS, RUNS):
                folder_find(found, c_folder, self.power_failed, True)
            else:
                while NSQC_LOAD(self.steps[index]) != DONE:
                    sched_yield()
        try:
            return make_opened(found, os.fsdecode(folder))
        finally:
            found_free(found)
