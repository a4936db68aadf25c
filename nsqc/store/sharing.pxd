# Whether a syncing commit waits a moment for more publishers: a sync takes as long for one record as for a thousand.
#
# Publishers that were just answered usually publish again at once. If others are waiting by then, their sync would
# start before the first group's next publishes arrive, and from then on each half would wait for the other's sync. So
# the next commit starts once as many publishers wait as both groups had together, or after half the duration of the
# last sync, or after LONGEST_NS. The loop does not sleep meanwhile; a wakeup can take as long as the wait. If no
# publisher came, the next SKIPPED commits do not wait.

from libc.stdint cimport int64_t


cdef struct Sharing:
    int64_t began_ns        # monotonic: start of the commit in progress
    int64_t until_ns        # monotonic: end of the wait
    int64_t before          # publishers waiting when it began
    int64_t enough          # number of publishers that ends the wait; 0: no wait
    int skips               # commits that do not wait


cdef void sharing_began(Sharing *sharing) noexcept
cdef void sharing_ended(Sharing *sharing, int64_t answered, int64_t waiting) noexcept
# Whether the next commit has to wait, given the number of publishers waiting for it.
cdef bint sharing_waits(Sharing *sharing, int64_t waiting) noexcept
