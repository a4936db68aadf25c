"""The time shared by everything that one event causes in a daemon."""

cimport cython


@cython.final
cdef class Clock:
    """Wall and monotonic time in nanoseconds, shared by the whole daemon."""

    def __cinit__(self):
        self.refresh()

    cdef void refresh(self) noexcept:
        self.wall = wall_ns()
        self.monotonic = monotonic_ns()
