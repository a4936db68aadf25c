# Work that may take long is done in slices. A loop iteration spends at most ITERATION_NS on them, one slice of each
# piece of work in turn.
#
# A loop whose length depends on clients asks over() every few dozen steps, and continues in its next slice. Callbacks
# of the loop (input, timers) begin a slice as well.
#
# A slice is also over when a client that asks for little waits, to be read or for its answer; over() looks for them
# every QUICK_NS. Then no other slice begins in this iteration. Before that, slices have as long as such clients had in
# the iteration before, so that many of them do not stop all other work.

from libc.stdint cimport int64_t
from nsqc.loop.unread cimport Unread
from nsqc.store.clock cimport monotonic_ns
from nsqc.store.fifo cimport Fifo
from nsqc.store.heap cimport Heap

cdef enum:
    SLICE_NS = 500000           # of one piece of work
    ITERATION_NS = 2000000      # of all slices in a loop iteration; reading from clients may take as long besides
    STEPS = 64                  # between two looks at the clock
    SIZE_SHIFT = 13             # copying a body of n bytes counts as 1 + (n >> SIZE_SHIFT) steps


cdef class Sliced:
    cdef bint queued                        # in the slicer's queue
    cdef bint run_slice(self) noexcept      # True: more is left


cdef class Slicer:
    cdef object loop                        # None: slices do not end, and nothing is run by itself
    cdef object queue                       # deque of Sliced
    cdef bint scheduled
    cdef int64_t deadline_ns                # monotonic: the end of the slice under way
    cdef readonly Unread unread             # None: nobody is looked for
    cdef int64_t look_ns                    # monotonic: the next look for them
    cdef bint gave_way                      # one of them was found in this iteration's slices

    cdef void add(self, Sliced work) noexcept       # from the next iteration on it is run in slices
    cdef void begin(self, int64_t now_ns) noexcept  # a callback of the loop is such a slice
    # The same for what may also be part of a longer slice, which keeps its end: else a client that makes thousands of
    # topics would never be at the end of its own.
    cdef void begin_within(self, int64_t now_ns) noexcept

    cdef inline bint over(self) noexcept:
        cdef int64_t now = monotonic_ns()
        return self.loop is not None and (now >= self.deadline_ns or now >= self.look_ns and self._gives_way(now))

    cdef bint _gives_way(self, int64_t now_ns) noexcept     # to a client that waits: then the slice is over
    cdef void look_from(self, int64_t now_ns) noexcept      # the first look comes QUICK_NS later, unless one waits


cdef class SlicedCall(Sliced):
    # A Python function, called once in each slice until it returns something false.
    cdef object call


cdef class Trash(Sliced):
    # Dropped messages and deliveries, which are freed in slices. It owns them and their places, which must not be
    # linked any more.
    cdef Slicer slicer
    cdef Fifo fifo
    cdef Heap[2] heaps

    @staticmethod
    cdef Trash new(Slicer slicer)
    cdef void take_fifo(self, Fifo *fifo) noexcept              # leaves it empty, like the following
    cdef void take_heap(self, int index, Heap *heap) noexcept
    cdef void start(self) noexcept
