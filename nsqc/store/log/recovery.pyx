"""Opens logs at a start. See the .pxd."""

cimport cython
from libc.errno cimport EOPNOTSUPP
from libc.stdint cimport int64_t
from libc.string cimport memset
from cpython.bytes cimport PyBytes_AS_STRING

import os
from collections import namedtuple

from nsqc.store.log.append cimport RESERVE
from nsqc.store.log.delays cimport Deferral, delay_add
from nsqc.store.log.earlier cimport make_earlier
from nsqc.store.log.found cimport OLD_FORMAT, FoundSegment, folder_find, found_free
from nsqc.store.log.index cimport Index
from nsqc.store.log.logstate cimport LogState, losses_found
from nsqc.store.log.segmenthead cimport FRAMES_AT, SegmentHead, lost_before
from nsqc.store.log.segments cimport Segment, segments_add, segments_reserve


class LogError(OSError):
    """An unusable folder; its files stay unchanged."""


class SegmentState(namedtuple("SegmentState", "first end position salt sequence size lost damaged")):
    """See the .pyi."""

    __slots__ = ()

    @property
    def bounds(self) -> tuple:
        """In TopicLog's form."""
        return self[:4]

    @property
    def bytes(self) -> int:
        """Of its frames."""
        return self.position - FRAMES_AT


@cython.final
cdef class Opened:
    """A log about to be used."""

    def __dealloc__(self):
        found_free(&self.found)

    @property
    def id(self) -> int:
        """0: none."""
        if self.found.has_manifest:
            return self.found.manifest.log_id
        return self.found.items[self.found.count - 1].head.log_id if self.found.count else 0

    @property
    def has_manifest(self) -> bool:
        """Whether the manifest exists and is sound."""
        return self.found.has_manifest

    @property
    def has_ids(self) -> bool:
        """Whether ids of publishes exist: see idjournal.pxd."""
        return self.found.has_ids

    @property
    def clean(self) -> bool:
        """Whether nothing was written since a stop or a start."""
        return self.found.clean

    @property
    def unlisted(self) -> int:
        """Segments that are newer than the manifest."""
        return self.found.unlisted

    @property
    def segments(self) -> list:
        """SegmentState of each, oldest first."""
        cdef FoundSegment *segment
        cdef int64_t at, before = 0
        found = []
        for at in range(self.found.count):
            segment = &self.found.items[at]
            lost = max(segment.head.before_records - before, 0) if at else self.lost_first
            before = segment.head.before_records + segment.end - segment.head.first
            found.append(SegmentState(segment.head.first, segment.end, segment.position, segment.head.salt,
                                      segment.head.sequence, segment.size, lost, segment.damaged))
        return found

    @property
    def delays(self) -> list:
        """(offset, due time in nanoseconds since 1970) of delayed messages that are not due."""
        cdef const Deferral *items = <const Deferral *> self.found.delays.c_data
        cdef int64_t at
        return [(items[at].offset, items[at].due_ns)
                for at in range(self.found.delays.length // <int64_t> sizeof(Deferral))]


cdef Opened make_opened(Found *found, str folder):
    """Takes over what was read. Raises LogError."""
    cdef Opened opened = Opened.__new__(Opened)
    cdef FoundSegment *last
    opened.found = found[0]
    memset(found, 0, sizeof(Found))
    raise_refusal(&opened.found, folder)
    opened.earlier = make_earlier(&opened.found.state, &opened.found.cursors)
    if opened.found.count:
        last = &opened.found.items[opened.found.count - 1]
        opened.next = last.end
        opened.lost_first = lost_first(&opened.found.items[0].head, opened.earlier)
    elif (opened.earlier.topic_cursor or 0) <= opened.found.manifest.reserved + RESERVE:
        opened.next = opened.earlier.topic_cursor or 0
    opened.resume_at = max(opened.next, opened.found.manifest.resume)
    # Offsets are reserved before they are used, so no channel gets further, even with an older manifest.
    if opened.earlier.reached <= max(opened.next, opened.found.manifest.reserved) + RESERVE:
        opened.resume_at = max(opened.resume_at, opened.earlier.reached)
    else:
        opened.earlier.damaged += 1
    if opened.found.lost_newest:
        opened.lost = max(1, opened.resume_at - opened.next,
                          opened.found.manifest.end - opened.found.manifest.newest_first)
        opened.resume_at = max(opened.resume_at, opened.found.manifest.reserved)
    elif opened.found.count and opened.resume_at == opened.earlier.reached:
        opened.had = opened.resume_at - opened.next
    return opened


cdef int64_t lost_first(const SegmentHead *head, Earlier earlier) noexcept:
    """Records of segments before the first one that are missing: retention has not removed them."""
    cdef int64_t end = head.before_end if head.before_end else head.first
    if head.before_salt == 0 or earlier.damaged and earlier.removed_to == 0:
        return lost_before(head)        # a damaged journal may have lost what retention has removed
    return max(min(head.before_records, end - earlier.removed_to), <int64_t> 0)


cdef int raise_refusal(Found *found, str folder) except -1:
    where = f"{folder}/{found.bad_first:020d}.log" if found.bad_first >= 0 else folder
    if found.error == OLD_FORMAT:
        raise LogError(0, "it has a log in a format that no release has written: move the folder away, or read it with "
                          "the version that made it", folder)
    if found.error == EOPNOTSUPP:
        raise LogError(0, "a later version has written it: use that, or move the folder away", where)
    if found.error:
        raise OSError(found.error, os.strerror(found.error), where)
    return 0


def read_folder(str folder not None, bint power_failed=False, bint keeps=False):
    """See the .pyi."""
    cdef Found found
    cdef bytes name = os.fsencode(folder)
    cdef const char *c_folder = PyBytes_AS_STRING(name)
    with nogil:
        folder_find(&found, c_folder, power_failed, keeps)
    try:
        return make_opened(&found, folder)
    finally:
        found_free(&found)


def enter(LogState log not None, Opened opened not None):
    """Moves the contents of a folder into a new log."""
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
        segment.lost = 0 if at else opened.lost_first
        segment.sequence, segment.salt = seen.head.sequence, seen.head.salt
        segment.due_ns, segment.time_ns = seen.due_ns, seen.time_ns
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
        log.durable_to = found.items[found.count - 1].synced
    if log.damaged or log.lost or log.segments.missing:
        losses_found(log)
    log.clock.refresh()
    for at in range(found.delays.length // <int64_t> sizeof(Deferral)):
        delay_add(&log.delays, &(<const Deferral *> found.delays.c_data)[at], log.longest_delay_ns, log.clock)


cdef int64_t first_unsynced(Found *found) noexcept:
    """The first offset of the first segment that may not be durable, according to the newest one."""
    cdef FoundSegment *last = &found.items[found.count - 1]
    cdef int64_t at
    for at in range(found.count):
        if found.items[at].head.sequence >= last.head.durable_from:
            return found.items[at].head.first
    return last.head.first
