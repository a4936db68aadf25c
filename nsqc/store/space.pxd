# Whether the data path has enough free space for publishes that need the disk. nsqc.broker.space maintains it.

from libc.stdint cimport int64_t

cdef class DiskSpace:
    cdef public bint low            # free space is below the limit: publishes that need the disk are refused
    cdef public str reason          # the reason shown to refused publishers; empty: never low so far
    cdef public int64_t unseen      # bytes written since free space was last checked
    cdef public int64_t trusted     # bytes that may be written before look() is called
    cdef public object look         # callable without arguments; None: not watched

    cdef inline void wrote(self, int64_t size) noexcept:
        # For all code that writes to the data path: before or after the write, in bytes.
        self.unseen += size
        if self.unseen >= self.trusted:
            self.notify()

    cdef void notify(self) noexcept
