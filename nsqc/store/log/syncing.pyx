"""What a sync of a log has to do. See the .pxd."""

import os

from libc.stdint cimport int64_t

from nsqc.store.log.logstate cimport file_path
from nsqc.store.log.segments cimport Segment
from nsqc.store.log.unsynced cimport unsynced_began


cdef tuple sync_work(LogState log):
    cdef int64_t index, again = 0 if log.unsynced_files.rewrite else -1
    cdef Segment *segment
    cdef list data = []
    log.recorder.told = False
    for index in range(log.segments.count):
        segment = &log.segments.items[index]
        if log.unsynced_files.behind and segment.first >= log.unsynced_files.synced:
            data.append((file_path(log, segment.first), again))
    if log.manifest.newest:
        data.append((f"{log.folder}/manifest", -1))
    for path in log.recorder.paths:
        data.append((path, again))
    if not log.recorder.rooted:
        data.append((os.path.dirname(log.folder) or "/", -1))
    log.recorder.syncing_names = log.recorder.names
    unsynced_began(&log.unsynced_files, &log.segments)
    if log.segments.count:
        log.syncing_first = log.segments.items[log.segments.count - 1].first
        log.syncing_to = log.segments.items[log.segments.count - 1].position
    log.unsynced_records = 0
    return data, log.unsynced_files.rewrite or log.recorder.synced_names < log.recorder.names, b"", []
