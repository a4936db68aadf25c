# Long work is divided into slices. A loop iteration spends at most ITERATION_NS on them, one slice per piece of work,
# round-robin.
#
# A loop whose length depends on clients calls over() every few dozen steps, and continues in its next slice. Callbacks
# of the loop (input, timers) start a slice as well.
#
# A slice also ends when a light client waits, to be read or for its answer; over() checks for that every QUICK_NS, and
# then no other slice starts in this iteration. Before that check, slices get as much time as light clients used in the
# previous iteration, so that many light clients do not stop all other work.

from libc.stdint cimport int64_t
from nsqc.loop.unread cimport Unread
from nsqc.store.clock cimport monotonic_ns
from nsqc.store.fifo cimport Fifo
from nsqc.store.heap cimport Heap
from nsqc.store.seams cimport LoopWork

cdef enum:
    SLICE_NS = 500000           # of one piece of work
    ITERATION_NS = 2000000      # of all slices in a loop iteration; reading from clients may take as long in addition
    STEPS = 64                  # between two clock reads
    SIZE_SHIFT = 13             # copying a body of n bytes counts as 1 + (n >> SIZE_SHIFT) steps


cdef class Slicer:
    cdef object loop                        # None: slices do not end, and nothing runs automatically
    cdef object queue                       # deque of LoopWork
    cdef bint scheduled
    cdef int64_t deadline_ns                # monotonic: end of the current slice
    cdef readonly Unread unread             # None: light clients are not checked
    cdef int64_t look_ns                    # monotonic: time of the next check
    cdef bint gave_way                      # a light client was found in this iteration's slices

    cdef void add(self, LoopWork work) noexcept       # runs it in slices from the next iteration on
    cdef void begin(self, int64_t now_ns) noexcept  # a callback of the loop is a slice, too
    # The same for code that may also run within a longer slice, whose end stays: otherwise a client that creates
    # thousands of topics would never reach the end of its own slice.
    cdef void begin_within(self, int64_t now_ns) noexcept

    cdef inline bint over(self) noexcept:
        cdef int64_t now = monotonic_ns()
        return self.loop is not None and (now >= self.deadline_ns or now >= self.look_ns and self._gives_way(now))

    cdef bint _gives_way(self, int64_t now_ns) noexcept     # to a waiting light client: the slice is over
    cdef void look_from(self, int64_t now_ns) noexcept      # the first check is QUICK_NS later, unless a client waits


cdef class SlicedCall(LoopWork):
    # A Python function, called once per slice until it returns a false value.
    cdef object call


cdef class Trash(LoopWork):
    # Dropped messages and deliveries, freed in slices. Owns them and their places, which must already be
    # unlinked.
    cdef Slicer slicer
    cdef Fifo fifo
    cdef Heap[2] heaps

    @staticmethod
    cdef Trash new(Slicer slicer)
    cdef void take_fifo(self, Fifo *fifo) noexcept              # empties it, like the following
    cdef void take_heap(self, int index, Heap *heap) noexcept
    cdef void start(self) noexcept
