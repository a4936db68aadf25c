# File work that leaves the loop: jobs in C, run by threads that hold no GIL, and collected by the loop.
#
# A job is one allocation. submit() hands it to a thread; when it is done the loop calls its owner's job_done(), which
# owns it from then on and frees it. Between the two the pool holds a reference to the owner.
#
# A job that says it is short (a write of little, to the page cache) is run within submit() as well, while little is
# written at all and no such job has been slow for long: two more switches of threads cost several times what it does.
# Where much is written, the kernel lets writers wait now and then, and only threads should. One slow job ends it for
# QUARANTINE_NS, and each further one for twice as long.
#
# A pool without threads runs each job within submit(), and job_done() with it: for tools, tests and the end of a stop.

from cpython.object cimport PyObject
from libc.stdint cimport int64_t


cdef struct Job:
    Job *next                                       # in the pool's lists
    void (*run)(Job *job) noexcept nogil            # on a thread; must not touch Python
    PyObject *owner                                 # a JobOwner; a reference from submit() to job_done()
    bint is_short           # may be run within submit()
    int64_t bytes           # that it writes
    int64_t took_ns         # by the run


cdef class JobOwner:
    cdef void job_done(self, Job *job) noexcept     # on the loop


cdef class IoPool:
    cdef readonly int threads           # at most; 0: jobs run at once
    cdef readonly int64_t under_way     # jobs that were submitted and not collected
    cdef int64_t quick                  # short jobs so far, up to FIRST_QUICK, that were quick
    cdef int64_t trusted_ns             # monotonic: short jobs are run within submit() from then on
    cdef int64_t quarantine_ns          # how long that takes after the next slow one
    cdef int64_t window_ns              # monotonic: since when bytes are counted
    cdef int64_t bytes_before           # written in the window before
    cdef int64_t bytes_now
    cdef int64_t burst_ns               # monotonic: since when spent_ns is counted
    cdef int64_t spent_ns               # within submit()
    cdef object loop
    cdef object watching                # the descriptor that the loop reads, while it does
    cdef void *c_state                  # owned: what the threads share

    # Takes the job. Where no thread can be had, it is run at once.
    cdef void submit(self, Job *job, JobOwner owner) noexcept

    cdef bint _may_run_here(self, Job *job) noexcept
    cdef void _count_bytes(self, Job *job) noexcept
    cdef void _judge(self, Job *job) noexcept
    cdef bint _opened(self) noexcept
    cdef void _finish(self, Job *job) noexcept
    cdef void _no_thread(self) noexcept
    cdef void _put_back(self, Job *job) noexcept
