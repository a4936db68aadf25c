"""Work in slices (nsqc.store.work), driven from Python."""

from libc.stdint cimport uint32_t

from nsqc.store.memory cimport monotonic_ns
from nsqc.store.message cimport (Fifo, Heap, Unacked, delivery_new, fifo_push, heap_push, message_new, unacked_add,
                                 unacked_drop)
from nsqc.store.work cimport LoopWork, Slicer, Trash


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
