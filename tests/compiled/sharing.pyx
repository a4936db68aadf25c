"""nsqc.store.work for tests."""

from libc.stdint cimport INT64_MAX

from nsqc.store.memory cimport monotonic_ns
from nsqc.store.work cimport Sharing, sharing_began, sharing_ended, sharing_waits


cdef class Commits:
    """The state of one topic."""

    cdef Sharing sharing

    def ended(self, answered, waiting, took_ns=0):
        """A commit that took this long, with this many publishers; `waiting` publishers await the next one."""
        sharing_began(&self.sharing)
        self.sharing.began_ns = monotonic_ns() - took_ns
        sharing_ended(&self.sharing, answered, waiting)

    def waits(self, waiting, late=None):
        """late: sets whether the time is over; None: unchanged."""
        if late is not None:
            self.sharing.until_ns = 0 if late else INT64_MAX
        return sharing_waits(&self.sharing, waiting)

    @property
    def left_ns(self):
        return self.sharing.until_ns - monotonic_ns()
