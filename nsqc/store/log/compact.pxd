# Compaction: what snapshots and journals say becomes one new snapshot, and they are removed. It runs on a thread, while
# the journal of the same number and later ones are being written.
#
# A kill at any moment leaves a folder that says the same: a snapshot has its name only once it is synced, and what it
# replaces goes after that.

from libc.stdint cimport int64_t
from nsqc.store.disk.pool cimport Job
from nsqc.store.log.journal cimport LogState

cdef struct CompactJob:
    Job job
    const char *c_folder        # borrowed
    int64_t upto                # the journal that was begun for it; it and later ones are not read
    int error                   # the result: 0 or errno
    int64_t bytes               # of the snapshot

cdef void run_compact(Job *c_job) noexcept nogil

# 0 or errno; then nothing is removed. Files that are damaged are kept as NAME.bad.
cdef int compact(const char *c_folder, int64_t upto, int64_t *bytes) noexcept nogil
# Writes a state as the snapshot of this number, durably. 0 or errno; then there is no such file.
cdef int snapshot_write(LogState *state, const char *c_folder, int64_t number, int64_t *bytes) noexcept nogil
