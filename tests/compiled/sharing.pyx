"""nsqc.store.sharing for tests."""

from libc.stdint cimport INT64_MAX

from nsqc.store.clock cimport monotonic_ns
from nsqc.store.sharing cimport Sharing, sharing_began, sharing_ended, sharing_waits


cdef class Commits:
    """Of one topic."""

    cdef Sharing sharing

    def ended(self, answered, waiting, took_ns=0):
        """A commit that took so long, with so many publishers; so many wait for the next one."""
        sharing_began(&self.sharing)
        self.sharing.began_ns = monotonic_ns() - took_ns
        sharing_ended(&self.sharing, answered, waiting)

    def waits(self, waiting, late=None):
        """late: whether the time is over; None: it is as it is."""
        if late is not None:
            self.sharing.until_ns = 0 if late else INT64_MAX
        return sharing_waits(&self.sharing, waiting)

    @property
    def left_ns(self):
        return self.sharing.until_ns - monotonic_ns()
