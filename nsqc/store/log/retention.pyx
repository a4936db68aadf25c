"""What a log removes. See the .pxd."""

import time

from libc.stdint cimport int64_t

from nsqc.store.log.delays cimport delays_drop_before, delays_drop_due
from nsqc.store.log.logstate cimport file_path
from nsqc.store.log.readfiles cimport readfiles_removed
from nsqc.store.log.segments cimport Segment, segments_drop, segments_surplus

cdef enum:
    MOST_GONE = 256             # segments that are removed at a time: each has names to be made


cdef int64_t retain_segments(LogState log, int64_t needed, int64_t retain_ns, int64_t retain_bytes,
                             bint drops) except -1:
    cdef int64_t index, gone = min(<int64_t> MOST_GONE, segments_surplus(
        &log.segments, needed, retain_ns, retain_bytes, drops, time.time_ns()))
    cdef Segment *segment
    cdef list paths = []
    if gone == 0:
        return 0
    for index in range(gone):
        segment = &log.segments.items[index]
        # The records first: an index without them is removed at the next start.
        paths += [(file_path(log, segment.first, kind), "") for kind in ("dat", "idx", "due")
                  if kind != "due" or segment.due_bytes]
    segments_drop(&log.segments, gone)
    delays_drop_before(&log.delays, log.segments.items[0].first)
    readfiles_removed(&log.reading, log.segments.items[0].first)
    log.unsynced_files.synced = max(log.unsynced_files.synced, log.segments.items[0].first)
    log.syncer.remove(paths)
    return gone


cdef int drop_passed(LogState log) except -1:
    cdef int64_t index
    cdef list paths = []
    delays_drop_due(&log.delays, log.clock.monotonic)
    if log.delays.count:
        return 0
    for index in range(log.segments.count - 1):
        if log.segments.items[index].due_bytes:
            paths.append((file_path(log, log.segments.items[index].first, "due"), ""))
            log.segments.items[index].due_bytes = 0
    if paths:
        log.syncer.remove(paths)
    return 0
