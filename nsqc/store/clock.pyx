"""The time, as one daemon sees it within one event."""

cimport cython


@cython.final
cdef class Clock:
    """Wall and monotonic time in nanoseconds, shared by all rooms of one daemon."""

    def __cinit__(self):
        self.refresh()

    cdef void refresh(self) noexcept:
        self.wall = wall_ns()
        self.monotonic = monotonic_ns()
