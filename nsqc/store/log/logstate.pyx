"""Where the log of a topic stands. See the .pxd."""

cimport cython
from libc.stdint cimport int64_t
from posix.unistd cimport close

from nsqc.store.log.buffer cimport buffer_free
from nsqc.store.log.delays cimport delays_free
from nsqc.store.log.frames cimport frames_free
from nsqc.store.log.index cimport index_free
from nsqc.store.log.openfiles cimport was_closed
from nsqc.store.log.reader cimport file_close
from nsqc.store.log.segments cimport segments_free


@cython.no_gc_clear     # __dealloc__ closes files
cdef class LogState(CommitLog):
    """What a TopicLog and the functions on it share."""

    def __cinit__(self):
        self.fd = self.reading.fd = -1
        self.damage = []

    def __dealloc__(self):
        if self.fd >= 0:
            close(self.fd)
            was_closed(1)
        file_close(&self.reading)
        segments_free(&self.segments)
        frames_free(&self.frames)
        buffer_free(&self.spare)
        buffer_free(&self.tail)
        delays_free(&self.delays)
        index_free(&self.index)


cdef void wake_readers(LogState log) noexcept:
    if log.readers is not None:
        log.readers.wake(log.next, log.closed)


cdef str file_path(LogState log, int64_t first):
    return f"{log.folder}/{first:020d}.log"
