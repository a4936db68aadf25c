"""Work that waits: its base types, the slicer that shares an iteration, commits. See the .pxd."""

cimport cython
from collections import deque
from libc.stdint cimport INT64_MAX, int64_t
from libc.stdlib cimport free
from libc.string cimport memset

from nsqc.loop.uv cimport QUICK_NS, span_over
from nsqc.store.memory cimport monotonic_ns
from nsqc.store.message cimport (Delivery, Entry, Unacked, delivery_free, fifo_free, fifo_pop, heap_free,
                                 message_unref, unacked_done)


# ====================================================================== seams

cdef class LoopWork:
    """Work that waits to be continued."""

    cdef bint run(self) noexcept:
        return False

    cdef void job_done(self, Job *job) noexcept:
        free(job)

    cdef void commit_ended(self, LoopWork commit, int error) noexcept:
        pass


cdef class StoreOwner(LoopWork):
    """The owner of a store."""

    cdef void on_written(self, int error, int64_t records, int64_t body_bytes) noexcept:
        pass

    cdef void on_readable(self) noexcept:
        pass

    cdef void on_unreadable(self) noexcept:
        pass

    cdef void check_rules(self) noexcept:
        pass

    cdef void on_commit_began(self) noexcept:
        pass

    cdef void on_appended(self, int64_t records) noexcept:
        pass

    cdef void on_idle(self) noexcept:
        pass


# ====================================================================== sharing

cdef int64_t LONGEST_NS = 500_000

cdef enum:
    SKIPPED = 16


cdef void sharing_began(Sharing *sharing) noexcept:
    sharing.enough = 0
    sharing.began_ns = monotonic_ns()


cdef void sharing_ended(Sharing *sharing, int64_t answered, int64_t waiting) noexcept:
    cdef int64_t now
    if answered == 0 or waiting == 0:
        return
    if sharing.skips > 0:
        sharing.skips -= 1
        return
    now = monotonic_ns()
    sharing.before = waiting
    sharing.enough = waiting + answered
    sharing.until_ns = now + min((now - sharing.began_ns) // 2, LONGEST_NS)


cdef bint sharing_waits(Sharing *sharing, int64_t waiting) noexcept:
    if sharing.enough == 0:
        return False
    if waiting < sharing.enough and monotonic_ns() < sharing.until_ns:
        return True
    if waiting <= sharing.before:
        sharing.skips = SKIPPED
    sharing.enough = 0
    return False


# ====================================================================== space

@cython.final
cdef class DiskSpace:
    """The state of one data path. Unwatched at first, with room for everything."""

    def __cinit__(self):
        self.reason = ""
        self.trusted = INT64_MAX

    cdef void notify(self) noexcept:
        if self.look is not None:
            self.look()


# ====================================================================== slices

@cython.final
cdef class Slicer:
    """The unfinished work of one daemon, run round-robin."""

    def __init__(self, loop: AbstractEventLoop | None = None, Unread unread=None):
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

    def call(self, call: Callable[[], object]):
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

    def __init__(self, call: Callable[[], object]):
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


# ====================================================================== commit

cdef enum:
    MOST_SHARED = 1048576       # buffered bytes at which a commit stops waiting for more publishers: see Sharing


@cython.final
cdef class CommitSchedule:
    """The commits and journal writes that start in the next loop iteration."""

    def __init__(self, loop: AbstractEventLoop | None = None, Slicer slicer=None, DiskSpace space=None):
        self.loop = loop
        self.slicer = Slicer() if slicer is None else slicer
        self.space = DiskSpace() if space is None else space
        self.due = []

    cdef void add(self, LoopWork work) noexcept:
        # A failure here (out of memory) is retried with the next record.
        if not work.queued:
            self.due.append(work)
            work.queued = True
        if not self.scheduled and self.loop is not None:
            if not self.awaited:
                self.loop.call_soon(self.run)
            self.scheduled = True

    cpdef run(self):
        """Starts writing everything dirty."""
        cdef LoopWork work
        cdef list due
        self.scheduled = False
        due = self.due
        self.due = []
        for work in due:
            work.queued = False
            work.run()

    def finish(self):
        """Runs until nothing is due; for tests and for pools without threads."""
        while self.due:
            self.run()


@cython.final
cdef class Commit(LoopWork):
    """The writes of one topic and its channels."""

    @staticmethod
    cdef Commit new(CommitSchedule schedule, StoreOwner owner):
        cdef Commit self = Commit.__new__(Commit)
        self.schedule = schedule
        self.owner = owner
        self.serial = 1
        self.dirty = []
        self.waiters = []
        self.under_way = []
        self.blocked = []
        return self

    cdef void block(self, LoopWork work) noexcept:
        self.blocked.append(work)

    cdef void wait(self, LoopWork waiter) noexcept:
        self.waiters.append(waiter)

    cdef void wait_running(self, LoopWork waiter) noexcept:
        if self.running or not self.has_unanswered():
            self.under_way.append(waiter)
        else:
            self.answers[len(self.answers) - 1][4].append(waiter)

    cdef bint run(self) noexcept:
        cdef LoopWork store
        cdef list dirty
        if self.running or not self.is_due():
            return False
        if self._waits():
            self.schedule.add(self)
            return False
        sharing_began(&self.sharing)
        dirty = self.dirty
        self.dirty = []
        self.under_way = self.waiters
        self.waiters = []
        self.serial += 1
        self.failed = 0
        self.syncs = False
        self.schedule.space.wrote(self.unwritten)
        self.unwritten = 0
        if self.owner is not None:
            self.owner.on_commit_began()
        # One more, so that the commit cannot end before all writes have started.
        self.running = 1 + <int> len(dirty)
        for store in dirty:
            store.queued = False
            store.run()
        self.one_ended(0)
        return False

    cdef bint _waits(self) noexcept:
        return (self.sharing.enough > 0 and self.unwritten < MOST_SHARED
                and sharing_waits(&self.sharing, len(self.waiters)))

    cdef void one_ended(self, int error) noexcept:
        if error and self.failed == 0:
            self.failed = error
        self.running -= 1
        if self.running == 0:
            self._end()

    cdef void _end(self) noexcept:
        cdef LoopWork work
        cdef list under_way = self.under_way, blocked
        cdef int failed = self.failed
        self.under_way = []
        if self.owner is not None:
            self.owner.commit_ended(self, failed)
        if self.has_unanswered() or self.ships and not failed and under_way and self.end > self.shipped_end:
            if self.answers is None:
                self.answers = deque()
            self.answers.append((self.serial - 1, failed, self.end, monotonic_ns(), under_way))
        else:
            self._answer(self.serial - 1, failed, under_way)
        if self.blocked:
            blocked, self.blocked = self.blocked, []
            for work in blocked:
                self.schedule.slicer.add(work)
        if self.is_due():
            if self.syncs:
                sharing_ended(&self.sharing, len(under_way), len(self.waiters))
            self.schedule.add(self)

    cdef void _answer(self, int64_t serial, int error, list waiters) noexcept:
        cdef LoopWork work
        self.ended = serial
        for work in waiters:
            work.commit_ended(self, error)

    cdef void shipped(self, int64_t end) noexcept:
        self.shipped_end = end
        while self.has_unanswered() and (self.answers[0][1] or self.answers[0][2] <= end or not self.ships):
            serial, error, _, _, waiters = self.answers.popleft()
            self._answer(serial, error, waiters)

    cdef void give_up(self, int error, int64_t until_ns) noexcept:
        while self.has_unanswered() and self.answers[0][3] < until_ns:
            serial, failed, _, _, waiters = self.answers.popleft()
            self._answer(serial, failed or error, waiters)
        self.shipped(self.shipped_end)      # what failed after them


@cython.final
cdef class CallWaiter(LoopWork):
    """Calls a Python function with the errno of a commit, or 0."""

    def __init__(self, call: Callable[[int], object]):
        self.call = call

    cdef void commit_ended(self, LoopWork commit, int error) noexcept:
        self.call(error)
