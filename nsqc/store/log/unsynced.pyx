"""The scope of a log's next sync. See the .pxd."""

from libc.stdint cimport int64_t
from libc.stdlib cimport malloc

from nsqc.store.log.segments cimport Segment


cdef int unsynced_take(Unsynced *unsynced, Segments *segments, AppendJob *job, bint ends) noexcept:
    cdef int64_t index, count = 0
    cdef Segment *items = segments.items
    if unsynced.lags:
        while count < segments.count and items[segments.count - 1 - count].first >= unsynced.synced:
            count += 1
    if not job.syncs:
        # The segment it appends to is not durable any more.
        index = segments.count - max(count, <int64_t> (segments.count > 0 and not ends))
        job.durable_from = items[index].sequence if index < segments.count else 0
        return 0
    if count:
        job.earlier = <int64_t *> malloc(<size_t> count * sizeof(int64_t))
        if job.earlier is NULL:
            return -1
        job.earlier_count = count
        for index in range(count):
            job.earlier[index] = items[segments.count - count + index].first
        # A running sync may be about to fail; after that the files look clean.
        job.rewrites = unsynced.rewrite or unsynced.runs
    return 0


cdef void unsynced_appended(Unsynced *unsynced, bint syncs, int64_t last) noexcept:
    unsynced.lags = not syncs
    if syncs:
        unsynced.synced = last
    else:
        unsynced.covers = False     # by the running sync


cdef void unsynced_failed(Unsynced *unsynced) noexcept:
    unsynced.rewrite = unsynced.failed = True


cdef void unsynced_began(Unsynced *unsynced, Segments *segments) noexcept:
    unsynced.syncing = segments.items[segments.count - 1].first if segments.count else 0
    unsynced.covers = unsynced.runs = True
    unsynced.failed = False


cdef void unsynced_ended(Unsynced *unsynced, bint succeeded) noexcept:
    # If two sync a file at once, only one of them may get an error that affects both.
    succeeded = succeeded and not unsynced.failed
    unsynced.runs = False
    unsynced.rewrite = not succeeded
    if succeeded:
        unsynced.synced = max(unsynced.synced, unsynced.syncing)
        unsynced.lags = unsynced.lags and not unsynced.covers
    unsynced.covers = False
