# Upward calls of the store, always on the loop: abstract bases, implemented by its users and its own upper parts. By
# default, all of them do nothing.

from cpython.object cimport PyObject
from libc.stdint cimport int64_t


cdef struct Job:            # file I/O on a thread; see disk/pool.pxd
    Job *next                                       # in the pool's lists
    void (*run)(Job *job) noexcept nogil            # called on a thread; must not touch Python
    PyObject *owner                                 # a LoopWork; a reference from submit() to job_done()
    bint is_short           # may be run within submit()
    int64_t bytes           # size of its write
    int64_t took_ns         # duration of run()


cdef class LoopWork:
    # Work that waits to be continued. Whatever it waits for calls the method of that name.
    cdef bint queued                                # in a list of work to run: Slicer's, or due or dirty ones
    # Runs its next part: a slice, or the start of a write. True: more remains, and the slicer calls it again.
    cdef bint run(self) noexcept
    cdef void job_done(self, Job *job) noexcept     # takes the job
    # A Commit has ended; error: errno, or 0. Until then, its publishes must not be answered.
    cdef void commit_ended(self, LoopWork commit, int error) noexcept


cdef class StoreOwner(LoopWork):
    # A backlog owns its disk queue, a channel its backlog and cursor, a topic its backlog and log.
    # A write has ended; if it failed: the messages that were rolled back, and the bytes of their bodies.
    cdef void on_written(self, int error, int64_t records, int64_t body_bytes) noexcept
    cdef void on_readable(self) noexcept            # more messages can be read than before
    cdef void on_unreadable(self) noexcept          # reading failed; the caller of the store retries
    cdef void check_rules(self) noexcept            # in the debug build, now and then
    # Only topics:
    cdef void on_commit_began(self) noexcept        # commit_ended() follows
    cdef void on_appended(self, int64_t records) noexcept       # the log has this many more readable records
    cdef void on_idle(self) noexcept                # the log has been idle for a while
