# Work that waits: its base types, the slicer that shares an iteration, commits.

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from nsqc.loop.uv cimport Unread
from nsqc.store.memory cimport monotonic_ns
from nsqc.store.message cimport Fifo, Heap


# ====================================================================== seams
# Upward calls of the store, always on the loop: abstract bases, implemented by its users and its own upper parts. By
# default, all of them do nothing.

cdef struct Job:            # file I/O on a thread; see disk/fileio.pxd
    Job *next                                       # in the pool's lists
    void (*run)(Job *job) noexcept nogil            # called on a thread; must not touch Python
    PyObject *owner                                 # a LoopWork; a reference from submit() to job_done()
    bint is_short           # may be run within submit()
    int64_t bytes           # size of its write
    int64_t took_ns         # duration of run()


cdef class LoopWork:
    # Work that waits to be continued. Whatever it waits for calls the method of that name.
    cdef bint queued                                # in a list of work to run: Slicer's, or due or dirty ones
    # Runs its next part: a slice, or the start of a write. True: more remains, and the slicer calls it again.
    cdef bint run(self) noexcept
    cdef void job_done(self, Job *job) noexcept     # takes the job
    # A Commit has ended; error: errno, or 0. Until then, its publishes must not be answered.
    cdef void commit_ended(self, LoopWork commit, int error) noexcept


cdef class StoreOwner(LoopWork):
    # A backlog owns its disk queue, a channel its backlog and cursor, a topic its backlog and log.
    # A write has ended; if it failed: the messages that were rolled back, and the bytes of their bodies.
    cdef void on_written(self, int error, int64_t records, int64_t body_bytes) noexcept
    cdef void on_readable(self) noexcept            # more messages can be read than before
    cdef void on_unreadable(self) noexcept          # reading failed; the caller of the store retries
    cdef void check_rules(self) noexcept            # in the debug build, now and then
    # Only topics:
    cdef void on_commit_began(self) noexcept        # commit_ended() follows
    cdef void on_appended(self, int64_t records) noexcept       # the log has `records` more readable records
    cdef void on_idle(self) noexcept                # the log has been idle for a while


# ====================================================================== sharing
# Whether a syncing commit waits a moment for more publishers: a sync takes as long for one record as for a thousand.
#
# Publishers that were just answered usually publish again at once. If others are waiting by then, their sync would
# start before the first group's next publishes arrive, and from then on each half would wait for the other's sync. So
# the next commit starts once as many publishers wait as both groups had together, or after half the duration of the
# last sync, or after LONGEST_NS. The loop does not sleep meanwhile; a wakeup can take as long as the wait. If no
# publisher came, the next SKIPPED commits do not wait.

cdef struct Sharing:
    int64_t began_ns        # monotonic: start of the commit in progress
    int64_t until_ns        # monotonic: end of the wait
    int64_t before          # publishers waiting when it began
    int64_t enough          # number of publishers that ends the wait; 0: no wait
    int skips               # commits that do not wait


cdef void sharing_began(Sharing *sharing) noexcept
cdef void sharing_ended(Sharing *sharing, int64_t answered, int64_t waiting) noexcept
# Whether the next commit has to wait, given the number of publishers waiting for it.
cdef bint sharing_waits(Sharing *sharing, int64_t waiting) noexcept


# ====================================================================== space
# Whether the data path has enough free space for publishes that need the disk. nsqc.broker.health maintains it.

cdef class DiskSpace:
    cdef public bint low            # free space is below the limit: publishes that need the disk are refused
    cdef public str reason          # the reason shown to refused publishers; empty: never low so far
    cdef public int64_t unseen      # bytes written since free space was last checked
    cdef public int64_t trusted     # bytes that may be written before look() is called
    cdef public object look    # type: Callable[[], object] | None; None: not watched

    cdef inline void wrote(self, int64_t size) noexcept:
        # For all code that writes to the data path: before or after the write, in bytes.
        self.unseen += size
        if self.unseen >= self.trusted:
            self.notify()

    cdef void notify(self) noexcept


# ====================================================================== slices
# Long work is divided into slices. A loop iteration spends at most ITERATION_NS on them, one slice per piece of work,
# round-robin.
#
# A loop whose length depends on clients calls over() every few dozen steps, and continues in its next slice. Callbacks
# of the loop (input, timers) start a slice as well.
#
# A slice also ends when a light client waits, to be read or for its answer; over() checks for that every QUICK_NS, and
# then no other slice starts in this iteration. Before that check, slices get as much time as light clients used in the
# previous iteration, so that many light clients do not stop all other work.

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


# ====================================================================== commit
# The writes of a topic and its channels, together: as commits, one after another.
#
# A store with unwritten data calls write_later(). The commit that collects it starts in the next loop iteration, or, if
# another one is in progress, after that one. Nothing else schedules a write.

cdef enum:
    MOST_UNWRITTEN = 8388608    # bytes that a topic and its channels may buffer during a commit


cdef class CommitSchedule:
    # Shared by all commits of one daemon, and the journals of logs.
    cdef object loop            # None: run() is called manually
    cdef readonly Slicer slicer
    cdef DiskSpace space        # of the disk being written to
    cdef list due               # LoopWork to run in the next loop iteration
    cdef bint scheduled
    cdef bint awaited           # a caller runs run() at the end of this loop iteration

    cdef void add(self, LoopWork work) noexcept
    cpdef run(self)


cdef class Commit(LoopWork):
    # The commits of one topic. serial is that of the commit being collected.
    cdef CommitSchedule schedule
    cdef StoreOwner owner       # the topic; None once deleted
    cdef readonly int64_t serial
    cdef list dirty             # stores with records in the buffer being filled
    cdef list waiters           # LoopWork, of the commit being collected
    cdef list under_way         # waiters of the commit in progress
    cdef int running            # writes in progress
    cdef int64_t unwritten      # bytes in the buffers being filled
    cdef list blocked           # LoopWork to run after the commit in progress
    cdef int64_t ended          # serial of the last commit whose waiters were answered
    # With sync = "bucket", waiters are answered once the bucket has their records, in the order of commits.
    cdef bint ships
    cdef int64_t end            # offset of the log up to which records are written
    cdef int64_t shipped_end    # the bucket has the records before this offset
    cdef object answers         # deque of (serial, errno, end, monotonic time when written, waiters); None: never used
    cdef int failed             # errno of the first failed write
    cdef bint syncs             # a write of the commit in progress syncs: the next one should serve many publishers
    cdef Sharing sharing        # of syncs

    @staticmethod
    cdef Commit new(CommitSchedule schedule, StoreOwner owner)
    cdef inline bint is_clean(self) noexcept:
        return not self.is_due() and self.running == 0
    cdef inline bint is_due(self) noexcept:
        return len(self.dirty) > 0
    # Whether more is buffered than one write may take: work that fills buffers stops, and resumes after the commit in
    # progress.
    cdef inline bint is_full(self) noexcept:
        return self.unwritten >= MOST_UNWRITTEN and self.running > 0
    # The commit being collected will run() the store, which calls one_ended() then or later. A failure (out of memory)
    # is retried with the next record.
    cdef inline void write_later(self, LoopWork store) noexcept:
        if not store.queued:
            self.dirty.append(store)
            store.queued = True
        if self.running == 0 and not (self.queued and self.schedule.scheduled):
            self.schedule.add(self)
    cdef void block(self, LoopWork work) noexcept
    cdef void wait(self, LoopWork waiter) noexcept          # for the one being collected
    cdef void wait_running(self, LoopWork waiter) noexcept  # for the last one that began and is not answered
    cdef inline bint has_unanswered(self) noexcept:
        return self.answers is not None and len(self.answers) > 0
    cdef void shipped(self, int64_t end) noexcept
    cdef void give_up(self, int error, int64_t until_ns) noexcept   # on what was written before
    cdef void _answer(self, int64_t serial, int error, list waiters) noexcept
    cdef void one_ended(self, int error) noexcept
    cdef bint _waits(self) noexcept
    cdef void _end(self) noexcept


cdef class CallWaiter(LoopWork):
    cdef object call
