"""Where the log of a topic stands. See the .pxd."""

cimport cython
from libc.stdint cimport int64_t

from nsqc.store.log.appends cimport files_close
from nsqc.store.log.delays cimport delays_free
from nsqc.store.log.jobs cimport buf_free
from nsqc.store.log.readfiles cimport readfiles_close
from nsqc.store.log.segments cimport segments_free


@cython.no_gc_clear     # __dealloc__ closes files
cdef class LogState(CommitLog):
    """What a TopicLog and the functions on it share."""

    def __cinit__(self):
        self.files.dat = self.files.idx = self.reading.dat = self.reading.idx = -1

    def __dealloc__(self):
        files_close(&self.files)
        readfiles_close(&self.reading)
        segments_free(&self.segments)
        buf_free(&self.out)
        buf_free(&self.due)
        buf_free(&self.spare)
        buf_free(&self.tail)
        delays_free(&self.delays)


cdef void wake_readers(LogState log) noexcept:
    if log.readers is not None:
        log.readers.wake(log.next, log.closed)


cdef str file_path(LogState log, int64_t first, str kind):
    return f"{log.folder}/{first:020d}.{kind}"
