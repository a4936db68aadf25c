"""Jobs for the threads of an IoPool (nsqc.store.disk.fileio), from Python."""

import threading

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from posix.unistd cimport read

from nsqc.store.disk.fileio cimport IoPool
from nsqc.store.memory cimport monotonic_ns
from nsqc.store.work cimport Job, LoopWork

cdef extern from "<pthread.h>" nogil:
    unsigned long pthread_self()

cdef struct TestJob:
    Job job
    int number
    int gate                    # a descriptor that the job reads a byte from; negative: none
    int64_t spin_ns             # busy time on its thread
    unsigned long thread        # the thread that ran it


cdef void wait_for(int gate) noexcept nogil:
    cdef char byte
    if gate >= 0:
        read(gate, &byte, 1)


cdef void run(Job *c_job) noexcept nogil:
    cdef TestJob *job = <TestJob *> c_job
    job.thread = pthread_self()
    wait_for(job.gate)
    cdef int64_t until = monotonic_ns() + job.spin_ns
    while job.spin_ns and monotonic_ns() < until:
        pass


cdef class Jobs(LoopWork):
    """Submits jobs; done has (number, thread it ran on, thread that collected it) of each."""

    cdef readonly list done

    def __init__(self):
        self.done = []

    def submit(self, IoPool pool not None, int number, int gate=-1, bint is_short=False, int64_t size=0,
               int64_t spin_ns=0):
        """gate: the job ends once it has read a byte from this descriptor."""
        cdef TestJob *job = <TestJob *> calloc(1, sizeof(TestJob))
        if job is NULL:
            raise MemoryError
        job.job.run = run
        job.job.is_short = is_short
        job.job.bytes = size
        job.number = number
        job.gate = gate
        job.spin_ns = spin_ns
        pool.submit(&job.job, self)

    cdef void job_done(self, Job *c_job) noexcept:
        cdef TestJob *job = <TestJob *> c_job
        self.done.append((job.number, job.thread, threading.get_ident()))
        free(job)
