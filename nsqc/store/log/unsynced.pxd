# Which segments of a log may not be on disk: those written to since the last sync, and what a killed run has left.

from libc.stdint cimport int64_t
from nsqc.store.log.append cimport AppendJob
from nsqc.store.log.segments cimport Segments


cdef struct Unsynced:
    int64_t synced          # segments that begin before this offset are on disk
    bint behind             # those from there on may not be
    bint rewrite            # a sync has failed: what it covered is written again before the next one
    int64_t syncing         # synced, once the sync under way has succeeded
    bint covers             # and then nothing is behind
    bint runs               # one is under way
    bint failed             # an append has found meanwhile that what it covers cannot be synced

# Gives an append what it has to sync first; -1: no memory. ends: it begins a segment.
cdef int unsynced_take(Unsynced *unsynced, Segments *segments, AppendJob *job, bint ends) noexcept
cdef void unsynced_appended(Unsynced *unsynced, bint syncs, int64_t last) noexcept  # last: offset of the last segment
cdef void unsynced_failed(Unsynced *unsynced) noexcept                              # what an append had to sync first
cdef void unsynced_began(Unsynced *unsynced, Segments *segments) noexcept           # a sync of all that is behind
cdef void unsynced_ended(Unsynced *unsynced, bint succeeded) noexcept
