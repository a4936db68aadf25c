# File I/O off the loop: jobs in C, run by threads without the GIL, and collected by the loop.
#
# A job is one allocation. submit() hands it to a thread; when it is done, the loop calls its owner's job_done(), which
# then owns and frees it. Meanwhile the pool holds a reference to the owner.
#
# A short job (a small write to the page cache) runs within submit() while the disk keeps up: handing it to a thread and
# back would cost several times as much as the job. It goes to a thread while the kernel has so much to write back that
# it may block writers, for FIRST_NS after a job was slow (twice as long after each further one, until many in a row
# were quick), and when short jobs have taken HERE_NS of the last BURST_NS.
#
# A pool without threads runs jobs, and job_done(), within submit(): for tools, tests and the end of a shutdown.

from libc.stdint cimport int64_t
from nsqc.store.seams cimport Job, LoopWork

cdef enum:                      # for creators of jobs
    SHORT_BYTES = 131072        # a write up to this size is short if the page cache takes it
    QUIET_NS = 1000000000       # after a write, the page cache keeps the data for the next one for at least this long


cdef class IoPool:
    cdef readonly int threads           # at most; 0: jobs run at once
    cdef readonly int64_t under_way     # jobs submitted and not yet collected
    cdef int64_t quick                  # consecutive quick short jobs
    cdef int64_t trusted_ns             # monotonic: until then short jobs go to threads
    cdef int64_t distrust_ns            # length of that period after the next slow job
    cdef int vmstat                     # descriptor of /proc/vmstat; -1: not open
    cdef readonly bint crowded          # the kernel has so much to write back that it may block writers
    cdef int64_t window_ns              # monotonic: start of the current window
    cdef int64_t bytes_before           # written in the previous window
    cdef int64_t bytes_now
    cdef int64_t burst_ns               # monotonic: start of counting spent_ns
    cdef int64_t spent_ns               # within submit()
    cdef object loop
    cdef object watching                # the descriptor watched by the loop; None: none
    cdef void *c_state                  # owned: State, shared by the threads

    # Takes ownership of the job. Runs it at once if no thread can be started.
    cdef void submit(self, Job *job, LoopWork owner) noexcept

    # Whether submit() would run a short job.
    cdef inline bint runs_here(self, Job *job) noexcept:
        return self.threads == 0 or (job.is_short and self._may_run_here())

    cdef bint _may_run_here(self) noexcept
    cdef void _count_bytes(self, Job *job) noexcept
    cdef void _judge(self, Job *job) noexcept
    cdef bint _opened(self) noexcept
    cdef void _finish(self, Job *job) noexcept
    cdef void _no_thread(self) noexcept
    cdef void _put_back(self, Job *job) noexcept
