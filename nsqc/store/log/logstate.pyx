"""The state of a topic's log. See the .pxd."""

cimport cython
from libc.stdint cimport int64_t

from nsqc.store.log.buffer cimport buffer_free
from nsqc.store.log.delays cimport delays_free
from nsqc.store.log.frames cimport frames_free
from nsqc.store.log.index cimport index_free
from nsqc.store.log.openfiles cimport close_counted
from nsqc.store.log.read cimport file_close
from nsqc.store.log.segments cimport segments_free


cdef enum:
    MOST_RANGES = 1024          # of damage; records beyond them may count twice


@cython.no_gc_clear     # __dealloc__ closes files
cdef class LogState(LoopWork):
    """State shared by a TopicLog and the functions on it."""

    def __cinit__(self):
        self.fd = self.reading.fd = -1
        self.damage = []

    def __dealloc__(self):
        close_counted(&self.fd)
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


# ---------------------------------------------------------------------- losses

cdef int64_t damage_found(LogState log, int64_t first, int64_t end):
    cdef int64_t fresh = end - first, begin, after
    cdef list kept = []
    for begin, after in log.damage:
        if after < first or begin > end:
            kept.append((begin, after))
            continue
        fresh -= max(min(after, end) - max(begin, first), <int64_t> 0)
        first, end = min(begin, first), max(after, end)
    if len(kept) < MOST_RANGES:
        kept.append((first, end))
    log.damage = kept
    log.damaged += max(fresh, <int64_t> 0)
    losses_found(log)
    return max(fresh, <int64_t> 0)


cdef void losses_found(LogState log):
    if log.losers is not None:
        log.losers[log.name] = log


cdef void losses_forgotten(LogState log):
    if log.losers is not None and log.losers.get(log.name) is log:
        del log.losers[log.name]
