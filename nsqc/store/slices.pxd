# Work that can be long, in slices: one loop iteration does ITERATION_NS of it at most, a slice of each in turns.
#
# Whoever loops over what clients can make long asks over() every few dozen steps, and goes on in its next slice. The
# loop's own calls (input, timers) begin a slice as well.

from libc.stdint cimport int64_t
from nsqc.store.clock cimport monotonic_ns
from nsqc.store.fifo cimport Fifo
from nsqc.store.heap cimport Heap

cdef enum:
    SLICE_NS = 500000           # of one piece of work
    ITERATION_NS = 2000000      # of all of them in a loop iteration; and, apart from that, of reading from clients
    STEPS = 64                  # between two looks at the clock
    SIZE_SHIFT = 13             # a message of n bytes whose body is copied takes 1 + (n >> SIZE_SHIFT) of them


cdef class Sliced:
    cdef bint queued                        # in the slicer's queue
    cdef bint run_slice(self) noexcept      # True: more is left


cdef class Slicer:
    cdef object loop                        # None: nothing is run later, and no slice ends
    cdef object queue                       # deque of Sliced
    cdef bint scheduled
    cdef int64_t deadline_ns                # monotonic: the end of the slice under way

    cdef void add(self, Sliced work) noexcept       # has it run in slices from the next iteration on
    cdef void begin(self, int64_t now_ns) noexcept  # a slice that the loop has begun itself

    cdef inline bint over(self) noexcept:
        return monotonic_ns() >= self.deadline_ns and self.loop is not None


cdef class SlicedCall(Sliced):
    # A Python function, called in each slice until it returns something false.
    cdef object call


cdef class Trash(Sliced):
    # What was dropped at once and is freed in slices. It owns the references, the deliveries and their places, which
    # must not be linked any more.
    cdef Slicer slicer
    cdef Fifo fifo
    cdef Heap[2] heaps

    @staticmethod
    cdef Trash new(Slicer slicer)
    cdef void take_fifo(self, Fifo *fifo) noexcept              # leaves it empty, like the following
    cdef void take_heap(self, int index, Heap *heap) noexcept
    cdef void start(self) noexcept
