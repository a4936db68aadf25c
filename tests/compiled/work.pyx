"""Work in slices, shared commits and jobs on threads (nsqc.store.work, nsqc.store.disk.fileio), driven from Python."""

import threading

from libc.stdint cimport INT64_MAX, int64_t, uint32_t
from libc.stdlib cimport calloc, free
from posix.unistd cimport read

from nsqc.store.disk.fileio cimport IoPool
from nsqc.store.memory cimport monotonic_ns
from nsqc.store.message cimport (Fifo, Heap, Unacked, delivery_new, fifo_push, heap_push, message_new, unacked_add,
                                 unacked_drop)
from nsqc.store.work cimport Job, LoopWork, Sharing, Slicer, Trash, sharing_began, sharing_ended, sharing_waits


# ====================================================================== sharing


cdef class Commits:
    """The state of one topic."""

    cdef Sharing sharing

    def ended(self, answered, waiting, took_ns=0):
        """A commit that took this long, with this many publishers; `waiting` publishers await the next one."""
        sharing_began(&self.sharing)
        self.sharing.began_ns = monotonic_ns() - took_ns
        sharing_ended(&self.sharing, answered, waiting)

    def waits(self, waiting, late=None):
        """late: sets whether the time is over; None: unchanged."""
        if late is not None:
            self.sharing.until_ns = 0 if late else INT64_MAX
        return sharing_waits(&self.sharing, waiting)

    @property
    def left_ns(self):
        return self.sharing.until_ns - monotonic_ns()


# ====================================================================== slices


cdef class Work(LoopWork):
    """Takes this many slices; appends each one to journal. greedy: a slice uses all its time."""

    cdef Slicer slicer
    cdef object name
    cdef list journal
    cdef readonly int left
    cdef bint greedy

    def __init__(self, Slicer slicer not None, name, list journal not None, int slices, bint greedy=False):
        self.slicer = slicer
        self.name = name
        self.journal = journal
        self.left = slices
        self.greedy = greedy

    def start(self):
        """Adds it to the slicer's work."""
        self.slicer.add(self)

    cdef bint run(self) noexcept:
        self.journal.append(self.name)
        while self.greedy and not self.slicer.over():
            pass
        self.left -= 1
        return self.left > 0


def begins_within(Slicer slicer not None, int most):
    """Whether a slice ends if each of its steps begins another slice; most: the limit of steps."""
    cdef int steps = 0
    slicer.begin(monotonic_ns())
    while not slicer.over() and steps < most:
        slicer.begin_within(monotonic_ns())
        steps += 1
    return steps < most


def throw_away(Slicer slicer not None, int messages, int deliveries):
    """Hands this many messages to the trash, and this many deliveries, each with a place."""
    cdef Trash trash = Trash.new(slicer)
    cdef Fifo fifo = Fifo(NULL, NULL, 0, 0, 0, 0, 0)
    cdef Heap heap = Heap(NULL, 0, 0)
    cdef Unacked unacked = Unacked(NULL, NULL, 0, 0)
    cdef int number
    for number in range(messages):
        fifo_push(&fifo, message_new(b"0" * 16, 0, b"x", 1), <uint32_t> (number & 1), 0)
    for number in range(deliveries):
        delivery = delivery_new(message_new(b"0" * 16, 0, b"x", 1), 1)
        delivery.deadline_ns = number
        delivery.place = unacked_add(&unacked, 0, number, 31)
        heap_push(&heap, delivery)
    unacked_drop(&unacked)
    trash.take_fifo(&fifo)
    trash.take_heap(0, &heap)
    if fifo.count or heap.count:
        raise AssertionError("the trash has left something behind")
    trash.start()


# ====================================================================== pool


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
