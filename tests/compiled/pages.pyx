"""Windows on files (nsqc.store.log.pages), driven from Python."""

from libc.stdint cimport int64_t
from cpython.bytes cimport PyBytes_FromStringAndSize

from nsqc.store.log.pages cimport Pages, pages_lost, pages_map, pages_unmap


cdef class Window:
    """A window on a file, and the stretch that was asked for last."""

    cdef Pages pages
    cdef const char *c_data
    cdef int64_t length

    def __dealloc__(self):
        pages_unmap(&self.pages)

    def map(self, int fd, int64_t file, int64_t at, int64_t length, int64_t most=0) -> int:
        """0, or errno."""
        cdef int error
        self.c_data = pages_map(&self.pages, fd, file, at, length, most, &error)
        self.length = length if error == 0 else 0
        return error

    def unmap(self):
        """Gives it back."""
        pages_unmap(&self.pages)
        self.length = 0

    def read(self) -> bytes:
        """What the stretch has."""
        return PyBytes_FromStringAndSize(self.c_data, self.length)

    @property
    def lost(self) -> bool:
        """Whether pages were taken away."""
        return pages_lost(&self.pages)

    @property
    def begin(self) -> int:
        """Where in memory the window begins; 0: there is none."""
        return <size_t> self.pages.c_window
