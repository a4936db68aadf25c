# Whether the data path has room for more, as publishes that need the disk see it. nsqc.broker.space sets it.

from libc.stdint cimport int64_t

cdef class DiskSpace:
    cdef public bint low            # less than the limit is free: publishes that need the disk are refused
    cdef public str reason          # why, for whoever is refused; empty: it has not been low yet
    cdef public int64_t unseen      # bytes written since the free space was last looked at
    cdef public int64_t trusted     # bytes that may be written before look() is called
    cdef public object look         # callable without arguments; None: nobody watches

    cdef inline void wrote(self, int64_t size) noexcept:
        # For whatever writes to the data path: before or after the write, in bytes.
        self.unseen += size
        if self.unseen >= self.trusted:
            self.notify()

    cdef void notify(self) noexcept
