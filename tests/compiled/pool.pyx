"""Jobs for the threads of an IoPool (nsqc.store.disk.pool), from Python."""

import threading

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from posix.unistd cimport read

from nsqc.store.disk.pool cimport IoPool, Job, JobOwner, Part, part_begin, part_end

cdef extern from "<pthread.h>" nogil:
    unsigned long pthread_self()

cdef struct TestJob:
    Job job
    int number
    int gate                    # a descriptor that the job reads a byte from; below 0: none
    unsigned long thread        # that has run it
    bint divided                # it leaves a part to another thread
    int part_gate               # the same for the part
    unsigned long part_thread

cdef struct TestPart:
    Part part
    TestJob *job


cdef void wait_for(int gate) noexcept nogil:
    cdef char byte
    if gate >= 0:
        read(gate, &byte, 1)


cdef extern from *:
    """
    static int nsqc_parts_begun;
    #define NSQC_PART_BEGINS() __atomic_fetch_add(&nsqc_parts_begun, 1, __ATOMIC_RELAXED)
    """
    int nsqc_parts_begun
    void NSQC_PART_BEGINS() nogil


def parts_begun() -> int:
    """Of all jobs so far."""
    return nsqc_parts_begun


cdef void run_part(Part *c_part) noexcept nogil:
    cdef TestJob *job = (<TestPart *> c_part).job
    job.part_thread = pthread_self()
    NSQC_PART_BEGINS()
    wait_for(job.part_gate)


cdef void run(Job *c_job) noexcept nogil:
    cdef TestJob *job = <TestJob *> c_job
    cdef TestPart part
    job.thread = pthread_self()
    if not job.divided:
        wait_for(job.gate)
        return
    part.part.run = run_part
    part.job = job
    part_begin(&job.job, &part.part)
    wait_for(job.gate)
    part_end(&job.job, &part.part)


cdef class Jobs(JobOwner):
    """Submits jobs; done has (number, thread it ran on, thread that collected it) of each.

    A divided job has the thread of its part in place of the last.
    """

    cdef readonly list done

    def __init__(self):
        self.done = []

    def submit(self, IoPool pool not None, int number, int gate=-1, bint is_short=False, int64_t size=0,
               bint divided=False, int part_gate=-1):
        """gate, part_gate: the job or its part ends once it has read a byte from this descriptor."""
        cdef TestJob *job = <TestJob *> calloc(1, sizeof(TestJob))
        if job is NULL:
            raise MemoryError
        job.job.run = run
        job.job.is_short = is_short
        job.job.bytes = size
        job.number = number
        job.gate = gate
        job.divided = divided
        job.part_gate = part_gate
        pool.submit(&job.job, self)

    cdef void job_done(self, Job *c_job) noexcept:
        cdef TestJob *job = <TestJob *> c_job
        self.done.append((job.number, job.thread, job.part_thread if job.divided else threading.get_ident()))
        free(job)
