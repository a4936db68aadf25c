"""Runs long work in slices, so no loop iteration takes long. See the .pxd."""

cimport cython
from libc.stdint cimport INT64_MAX, int64_t
from libc.string cimport memset

from nsqc.loop.unread cimport QUICK_NS
from nsqc.loop.watch cimport span_over
from nsqc.store.delivery cimport Delivery, delivery_free
from nsqc.store.fifo cimport Entry, fifo_free, fifo_pop
from nsqc.store.heap cimport heap_free
from nsqc.store.message cimport message_unref
from nsqc.store.disk.unacked cimport Unacked, unacked_done

from collections import deque


@cython.final
cdef class Slicer:
    """The unfinished work of one daemon, run round-robin."""

    def __init__(self, loop=None, Unread unread=None):
        self.loop = loop
        self.queue = deque()
        self.deadline_ns = self.look_ns = INT64_MAX
        self.unread = unread

    cdef void add(self, LoopWork work) noexcept:
        if work.queued:
            return
        self.queue.append(work)
        work.queued = True
        if not self.scheduled and self.loop is not None:
            self.loop.call_soon(self.run)
            self.scheduled = True

    cdef void begin(self, int64_t now_ns) noexcept:
        self.deadline_ns = now_ns + SLICE_NS
        self.look_from(now_ns)

    cdef void look_from(self, int64_t now_ns) noexcept:
        if self.unread is not None:
            self.look_ns = now_ns if self.unread.noticed or self.unread.owes else now_ns + QUICK_NS

    cdef bint _gives_way(self, int64_t now_ns) noexcept:
        self.look_ns = now_ns + QUICK_NS
        if not self.unread.any(now_ns):
            return False
        self.deadline_ns = now_ns
        self.gave_way = True
        return True

    cdef void begin_within(self, int64_t now_ns) noexcept:
        if self.deadline_ns <= now_ns or self.deadline_ns > now_ns + ITERATION_NS:
            self.begin(now_ns)

    def run(self):
        """Called once per loop iteration."""
        cdef int64_t began, now = monotonic_ns()
        cdef int64_t end = now + ITERATION_NS
        cdef LoopWork work
        self.scheduled = True       # add() need not schedule it
        self.gave_way = False
        if self.unread is not None:
            self.look_ns = now + QUICK_NS + min(self.unread.quick_ns, <int64_t> ITERATION_NS)
            self.unread.quick_ns = 0
        while self.queue:
            work = self.queue.popleft()
            work.queued = False
            self.deadline_ns = min(now + SLICE_NS, end)
            began = now
            if work.run():
                self.add(work)
            now = monotonic_ns()
            span_over(now - began, b"a slice of", work)
            if now >= end or self.gave_way or now >= self.look_ns and self._gives_way(now):
                break
        if self.unread is not None:
            self.unread.answered()      # answers not sent by now are not sent in this iteration
        self.scheduled = len(self.queue) > 0
        if self.scheduled:
            self.loop.call_soon(self.run)

    def start(self):
        """Starts a slice in a callback of the loop; see is_over()."""
        self.begin(monotonic_ns())

    def is_over(self) -> bool:
        """Whether the current slice is over: the rest must wait for the next one."""
        return self.over()

    def call(self, call):
        """Calls call() in each slice until it returns a false value."""
        self.add(SlicedCall(call))

    def finish(self):
        """Runs all remaining work, for a shutdown."""
        cdef LoopWork work
        while self.queue:
            work = self.queue.popleft()
            work.queued = False
            self.deadline_ns = self.look_ns = INT64_MAX
            if work.run():
                self.add(work)


@cython.final
cdef class SlicedCall(LoopWork):
    """Long work in Python."""

    def __init__(self, call):
        self.call = call

    def __str__(self):
        return getattr(self.call, "__qualname__", "a call")

    cdef bint run(self) noexcept:
        return bool(self.call())


@cython.final
cdef class Trash(LoopWork):
    """Messages and deliveries without an owner."""

    def __str__(self):
        return "dropped messages"

    @staticmethod
    cdef Trash new(Slicer slicer):
        cdef Trash self = Trash.__new__(Trash)
        self.slicer = slicer
        return self

    def __dealloc__(self):
        cdef int index
        fifo_free(&self.fifo)
        for index in range(2):
            while free_last(&self.heaps[index]):
                pass

    cdef void take_fifo(self, Fifo *fifo) noexcept:
        self.fifo = fifo[0]
        memset(fifo, 0, sizeof(fifo[0]))
        fifo.passed = self.fifo.passed + self.fifo.first + self.fifo.count     # tells walks that all entries are gone

    cdef void take_heap(self, int index, Heap *heap) noexcept:
        self.heaps[index] = heap[0]
        memset(heap, 0, sizeof(heap[0]))

    cdef void start(self) noexcept:
        if self.slicer.loop is not None and (self.fifo.count or self.heaps[0].count or self.heaps[1].count):
            self.slicer.add(self)

    cdef bint run(self) noexcept:
        cdef Entry entry
        cdef int index, steps = STEPS
        while fifo_pop(&self.fifo, &entry):
            message_unref(entry.message)
            steps -= 1
            if steps == 0:
                if self.slicer.over():
                    return True
                steps = STEPS
        for index in range(2):
            while free_last(&self.heaps[index]):
                steps -= 1
                if steps == 0:
                    if self.slicer.over():
                        return True
                    steps = STEPS
        return False


cdef bint free_last(Heap *heap) noexcept:
    """Frees one delivery; False: none was left, and the heap is freed."""
    cdef Delivery *delivery
    if heap.count == 0:
        heap_free(heap)
        return False
    heap.count -= 1
    delivery = heap.items[heap.count].delivery
    free_delivery(delivery)
    return True


cdef void free_delivery(Delivery *delivery) noexcept:
    """Frees it and its place, which is already unlinked."""
    cdef Unacked none
    if delivery.place is not NULL:
        memset(&none, 0, sizeof(none))
        unacked_done(&none, delivery.place)
    delivery_free(delivery)
