# Whether a commit that syncs waits a moment for more publishers: a sync takes as long for one record as for a thousand.
#
# Publishers that were answered just now publish again at once, as a rule. If others wait by then, their sync would
# begin before the first are heard again, and from then on each half would wait for the sync of the other. So the next
# commit begins once as many wait as both had together: after half of what the last one took at the latest, and after
# LONGEST_NS. The loop does not sleep meanwhile; being woken can take as long as the wait. Where nobody came, the next
# SKIPPED commits do not wait.

from libc.stdint cimport int64_t


cdef struct Sharing:
    int64_t began_ns        # monotonic: when the commit under way began
    int64_t until_ns        # monotonic: then the wait is over
    int64_t before          # publishers that waited when it began
    int64_t enough          # so many end it; 0: nothing is waited for
    int skips               # commits that do not wait


cdef void sharing_began(Sharing *sharing) noexcept
cdef void sharing_ended(Sharing *sharing, int64_t answered, int64_t waiting) noexcept
# Whether the next commit has to wait, with so many publishers that wait for it.
cdef bint sharing_waits(Sharing *sharing, int64_t waiting) noexcept
