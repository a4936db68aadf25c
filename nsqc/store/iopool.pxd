# File work that leaves the loop: jobs in C, run by threads that hold no GIL, and collected by the loop.
#
# A job is one allocation. submit() hands it to a thread; when it is done the loop calls its owner's job_done(), which
# owns it from then on and frees it. Between the two the pool holds a reference to the owner.
#
# A job that says it is short (a write of little, to the page cache) is run within submit() as well, where the last such
# jobs have shown that the disk keeps up: two more switches of threads cost several times what it does. One that takes
# long ends that at once, and only threads find out when the disk is quick again.
#
# A pool without threads runs each job within submit(), and job_done() with it: for tools, tests and the end of a stop.

from cpython.object cimport PyObject
from libc.stdint cimport int64_t


cdef struct Job:
    Job *next                                       # in the pool's lists
    void (*run)(Job *job) noexcept nogil            # on a thread; must not touch Python
    PyObject *owner                                 # a JobOwner; a reference from submit() to job_done()
    bint is_short           # may be run within submit()
    int64_t took_ns         # by the run


cdef class JobOwner:
    cdef void job_done(self, Job *job) noexcept     # on the loop


cdef class IoPool:
    cdef readonly int threads           # at most; 0: jobs run at once
    cdef readonly int64_t under_way     # jobs that were submitted and not collected
    cdef readonly int64_t quick         # short jobs in a row that took no longer than QUICK_NS
    cdef readonly int64_t needed        # so many of them, before they are run within submit()
    cdef int64_t window_ns              # monotonic: when the time within submit() was last counted from 0
    cdef int64_t spent_ns               # within submit() since then
    cdef object loop
    cdef object watching                # the descriptor that the loop reads, while it does
    cdef void *c_state                  # owned: what the threads share

    # Takes the job. Where no thread can be had, it is run at once.
    cdef void submit(self, Job *job, JobOwner owner) noexcept

    cdef bint _may_run_here(self, Job *job) noexcept
    cdef void _judge(self, Job *job) noexcept
    cdef bint _opened(self) noexcept
    cdef void _finish(self, Job *job) noexcept
    cdef void _no_thread(self) noexcept
    cdef void _put_back(self, Job *job) noexcept
