"""The time shared by everything that one event causes in a daemon."""

cimport cython


@cython.final
cdef class Clock:
    """Wall and monotonic time in nanoseconds, shared by the whole daemon."""

    def __cinit__(self):
        self.wall = self.since = wall_ns()
        self.monotonic = monotonic_ns()
        self.offset = self.wall - self.monotonic

    cdef void refresh(self) noexcept:
        cdef int64_t moved
        self.wall = wall_ns()
        self.monotonic = monotonic_ns()
        moved = self.wall - self.monotonic - self.offset
        if not -STEP_NS < moved < STEP_NS:
            self.offset += moved
            self.steps += 1
            if moved < 0:
                self.since = self.wall
