# Which segments of a log may not be on disk: those written since the last sync, and those of a killed run.

from libc.stdint cimport int64_t
from nsqc.store.log.append cimport AppendJob
from nsqc.store.log.segments cimport Segments


cdef struct Unsynced:
    int64_t synced          # segments that begin before this offset are on disk
    bint lags               # later ones may not be
    bint rewrite            # a sync failed: rewrite its data before the next one
    int64_t syncing         # value of `synced` once the running sync succeeds
    bint covers             # all is on disk then
    bint runs               # a sync is running
    bint failed             # meanwhile an append found that the sync's data cannot be synced

# Gives an append the segments that it has to sync first; -1: no memory. ends: it begins a segment.
cdef int unsynced_take(Unsynced *unsynced, Segments *segments, AppendJob *job, bint ends) noexcept
cdef void unsynced_appended(Unsynced *unsynced, bint syncs, int64_t last) noexcept  # last: offset of the last segment
cdef void unsynced_failed(Unsynced *unsynced) noexcept                              # the sync that an append does first
cdef void unsynced_began(Unsynced *unsynced, Segments *segments) noexcept           # a sync of everything written
cdef void unsynced_ended(Unsynced *unsynced, bint succeeded) noexcept
