"""Whether the data path has enough free space. See the .pxd."""

cimport cython
from libc.stdint cimport INT64_MAX


@cython.final
cdef class DiskSpace:
    """The state of one data path. Unwatched at first, with room for everything."""

    def __cinit__(self):
        self.reason = ""
        self.trusted = INT64_MAX

    cdef void notify(self) noexcept:
        if self.look is not None:
            self.look()
