"""What a log removes. See the .pxd."""

import time

from libc.stdint cimport int64_t

from nsqc.store.log.delays cimport delays_drop_before
from nsqc.store.log.logstate cimport file_path
from nsqc.store.log.reader cimport file_removed
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
        paths.append((file_path(log, segment.first), ""))
    segments_drop(&log.segments, gone)
    delays_drop_before(&log.delays, log.segments.items[0].first)
    file_removed(&log.reading, log.segments.items[0].first)
    log.unsynced_files.synced = max(log.unsynced_files.synced, log.segments.items[0].first)
    log.syncer.remove(paths)
    return gone
