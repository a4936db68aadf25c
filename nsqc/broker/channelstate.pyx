"""The state of a channel, and its metrics. See the .pxd."""

from libc.stdint cimport INT64_MAX, int64_t, uint32_t
from libc.stdlib cimport calloc, free

from nsqc.broker.again cimport again_forget
from nsqc.broker.consumer cimport DISTANCES, Consumer
from nsqc.broker.figures cimport ChannelFigures, ChannelLevels, figure_names, figures_tuple
from nsqc.broker.lost cimport lost_free
from nsqc.metrics.times cimport TwoTimes, times_add
from nsqc.store.commit cimport Commit
from nsqc.store.delivery cimport Delivery, delivery_free
from nsqc.store.disk.queue cimport DiskQueue
from nsqc.store.heap cimport Heap, heap_remove
from nsqc.store.inflight cimport inflight_free
from nsqc.store.log.segments cimport segments_rank
from nsqc.store.log.topiclog cimport TopicLog
from nsqc.store.slices cimport Trash

cdef int64_t NEVER = INT64_MAX
cdef ChannelFigures no_figures
FIGURES = figure_names(no_figures)


cdef class ChannelState(StoreOwner):
    """State shared by the parts of a channel."""

    def __init__(self, bytes name not None, bint ephemeral, DiskQueue disk, int64_t max_memory, Commit commit not None,
                 Clock clock not None, TopicState owner not None, timers, LatencyWindow latency,
                 int64_t max_msg_timeout_ns, int64_t max_consumers):
        self.name = name
        self.ephemeral = ephemeral
        self.backlog = Backlog.new(disk, max_memory, True, clock, commit, self)
        self.clock = clock
        self.owner = owner
        self.timers = timers
        self.slicer = commit.schedule.slicer
        self.latency = latency
        self.max_msg_timeout_ns = max_msg_timeout_ns
        self.max_consumers = max_consumers
        self.clients = {}
        self.dead_letter = b""
        self.alarm_ns = NEVER
        self.resume_ns = NEVER
        self.look_ns = NEVER

    def __dealloc__(self):
        cdef Trash trash = Trash.new(None)      # freed at once, not in slices
        trash.take_heap(0, &self.timeouts)
        trash.take_heap(1, &self.delayed)
        trash = Trash.new(None)
        trash.take_heap(0, &self.front)
        trash.take_heap(1, &self.again.heap)
        again_forget(&self.again)
        trash = Trash.new(None)
        trash.take_heap(0, &self.dead)
        trash.take_heap(1, &self.sent)
        inflight_free(&self.in_flight)
        lost_free(&self.lost)
        free(self.rules)
        free(self.times)

    def __str__(self):
        name = f"channel {self.name.decode()}"
        return name if self.owner is None else f"{name} of {self.owner}"

    def retry(self):
        """Retries a backlog that could not be written."""
        self.backlog.retry()

    @property
    def disk(self):
        """The DiskQueue of the backlog; None: no disk."""
        return self.backlog.disk

    @property
    def consumers(self) -> list:
        """The consumers, in order of arrival."""
        return list(self.clients.values())

    # ------------------------------------------------------------------ metrics

    def figures(self) -> tuple:
        """The numbers of /stats, in the order of FIGURES."""
        self.clock.refresh()
        cdef ChannelFigures figures = ChannelFigures(self.levels(), self.counts)
        return figures_tuple(&figures, sizeof(figures))

    cdef ChannelLevels levels(self) noexcept:
        return ChannelLevels(self.count_waiting(), self.count_on_disk(), self.timeouts.count, self.count_deferred(),
                             len(self.clients))

    cdef int64_t count_waiting(self) noexcept:
        return (self.backlog.depth() - self.backlog.delayed_on_disk() + self.front.count - self.front_deferred()
                + self.again.heap.count
                + (self.cursor.depth() if self.cursor is not None else 0))

    cdef int64_t count_on_disk(self) noexcept:
        cdef int64_t count = self.backlog.disk_depth() - self.backlog.delayed_on_disk()
        if self.cursor is not None:
            count += max(self.cursor.depth() - self.backlog.max_memory, <int64_t> 0)
        return count

    cdef int64_t count_deferred(self) noexcept:
        return (self.delayed.count + self.dead.count + self.sent.count + self.front_deferred()
                + self.backlog.delayed_on_disk()
                + (self.cursor.deferred_count() if self.cursor is not None else 0))

    cdef int64_t front_deferred(self) noexcept:
        cdef int64_t count = 0
        cdef uint32_t index
        for index in range(self.front.count):
            count += self.front.items[index].deadline_ns > self.clock.monotonic
        return count

    cdef int64_t log_lag(self) noexcept:
        cdef TopicLog log = self.cursor.log
        return max(segments_rank(&log.segments, log.next) - segments_rank(&log.segments, self.cursor.next), <int64_t> 0)

    @property
    def depth(self) -> int:
        """Waiting messages, in memory and on disk."""
        self.clock.refresh()
        return self.count_waiting()

    @property
    def backend_depth(self) -> int:
        """Waiting messages on disk; for a log, those that nsqd would not keep in memory."""
        self.clock.refresh()
        return self.count_on_disk()

    def deliveries(self) -> list:
        """Count of messages delivered to consumers at each distance."""
        cdef Consumer consumer
        cdef int distance
        counts = [self.left[distance] for distance in range(DISTANCES)]
        for consumer in self.clients.values():
            counts[consumer.distance] += consumer.message_count
        return counts

    @property
    def in_flight_count(self) -> int:
        """Messages in flight to consumers."""
        return self.timeouts.count

    @property
    def deferred_count(self) -> int:
        """Messages that are not due; those of an earlier run are still on disk."""
        self.clock.refresh()
        return self.count_deferred()

    @property
    def position(self):
        """The first offset of the log that was never delivered; None: the topic has no log."""
        return None if self.cursor is None else self.cursor.next

    @property
    def oldest(self):
        """The lowest unfinished offset of the log; None: the topic has no log."""
        cdef int64_t least
        if self.cursor is None:
            return None
        least = self.cursor.least_waiting()
        least = least_of(&self.timeouts, least)
        least = least_of(&self.front, least)
        least = least_of(&self.again.heap, least)
        least = least_of(&self.dead, least)
        return least_of(&self.sent, least)

    def forget_removed(self) -> bool:
        """Drops requeued and deferred messages that retention removed from the log; checks some of them. Whether there
        may be more."""
        return self.cursor is not None and self.cursor.forget_removed()

    def restore_delays(self, dict delays not None):
        """Sets the due times, in wall-clock nanoseconds, of messages that an earlier run wrote to disk."""
        self.backlog.delays.update(delays)


cdef int64_t least_of(Heap *heap, int64_t least) noexcept:
    """The lowest offset of the log among these deliveries and least."""
    cdef uint32_t index
    for index in range(heap.count):
        if heap.items[index].delivery.offset >= 0:
            least = min(least, heap.items[index].delivery.offset)
    return least


cdef void drop_logged(Heap *heap) noexcept:
    cdef Delivery *delivery
    cdef uint32_t at = heap.count
    # Backwards: the item that takes a removed one's place is either already checked or comes later.
    while at:
        at = min(at, heap.count)
        if at == 0:
            return
        delivery = heap.items[at - 1].delivery
        if delivery.offset < 0:
            at -= 1
            continue
        heap_remove(heap, delivery)
        delivery_free(delivery)


cdef void count_other_time(ChannelState channel, int which, int64_t ns) noexcept:
    """Counts a time that differs from the previous message's."""
    if channel.times is NULL:
        channel.times = <TwoTimes *> calloc(1, sizeof(TwoTimes))
        if channel.times is NULL:
            return
    times_add(&channel.times.of[which], ns)
