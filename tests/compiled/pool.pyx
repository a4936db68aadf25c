"""Jobs for the threads of an IoPool (nsqc.store.disk.pool), from Python."""

import threading

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from posix.unistd cimport read

from nsqc.store.disk.pool cimport IoPool, Job, JobOwner

cdef extern from "<pthread.h>" nogil:
    unsigned long pthread_self()

cdef struct TestJob:
    Job job
    int number
    int gate                    # a descriptor that the job reads a byte from; below 0: none
    unsigned long thread        # that has run it


cdef void run(Job *c_job) noexcept nogil:
    cdef TestJob *job = <TestJob *> c_job
    cdef char byte
    job.thread = pthread_self()
    if job.gate >= 0:
        read(job.gate, &byte, 1)


cdef class Jobs(JobOwner):
    """Submits jobs; done has (number, thread it ran on, thread that collected it) of each."""

    cdef readonly list done

    def __init__(self):
        self.done = []

    def submit(self, IoPool pool not None, int number, int gate=-1, bint is_short=False, int64_t size=0):
        """gate: the job ends once it has read a byte from this descriptor."""
        cdef TestJob *job = <TestJob *> calloc(1, sizeof(TestJob))
        if job is NULL:
            raise MemoryError
        job.job.run = run
        job.job.is_short = is_short
        job.job.bytes = size
        job.number = number
        job.gate = gate
        pool.submit(&job.job, self)

    cdef void job_done(self, Job *c_job) noexcept:
        cdef TestJob *job = <TestJob *> c_job
        self.done.append((job.number, job.thread, threading.get_ident()))
        free(job)
