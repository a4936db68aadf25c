"""Abstract bases for upward calls of the store. See the .pxd."""

from libc.stdint cimport int64_t
from libc.stdlib cimport free


cdef class LoopWork:
    """Work that waits to be continued."""

    cdef bint run(self) noexcept:
        return False

    cdef void job_done(self, Job *job) noexcept:
        free(job)

    cdef void commit_ended(self, LoopWork commit, int error) noexcept:
        pass


cdef class StoreOwner(LoopWork):
    """The owner of a store."""

    cdef void on_written(self, int error, int64_t records, int64_t body_bytes) noexcept:
        pass

    cdef void on_readable(self) noexcept:
        pass

    cdef void on_unreadable(self) noexcept:
        pass

    cdef void check_rules(self) noexcept:
        pass

    cdef void on_commit_began(self) noexcept:
        pass

    cdef void on_appended(self, int64_t records) noexcept:
        pass

    cdef void on_idle(self) noexcept:
        pass
