"""What topics and channels know of each other: their state, consumers, open batches. See the .pxd."""

cimport cython
import math
from libc.stdint cimport INT64_MAX, int64_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from nsqc.broker.rules cimport again_forget, lost_free
from nsqc.metrics.times cimport TwoTimes, times_add
from nsqc.store.backlog cimport PUT_MEMORY
from nsqc.store.disk.queue cimport DiskQueue
from nsqc.store.log.frame cimport buffer_free
from nsqc.store.log.segment cimport segments_rank
from nsqc.store.log.topiclog cimport TopicLog
from nsqc.store.memory cimport monotonic_ns
from nsqc.store.message cimport Delivery, Heap, Message, delivery_free, fifo_free, heap_remove, inflight_free
from nsqc.store.work cimport Commit, StoreOwner, Trash


# ====================================================================== consumer
# A consumer, from its channel's view.

cdef class Consumer:
    """Abstract base of sessions."""

    cdef void deliver(self, Message *message, uint16_t attempts) noexcept:
        pass

    cdef void dismiss(self) noexcept:
        pass

    def stats(self, topic=None):
        """ClientStats; its publish count is that of topic, or else the first."""
        raise NotImplementedError


def busy_among(list consumers not None) -> tuple:
    """The connected consumers with messages in flight, and the total of these messages."""
    cdef Consumer consumer
    cdef int64_t in_flight = 0
    cdef list busy = []
    for consumer in consumers:
        if consumer.in_flight > 0 and not consumer.closed:
            in_flight += consumer.in_flight
            busy.append(consumer)
    return busy, in_flight


# ====================================================================== latency
# Time from publishing a message to finishing it.

cdef extern from *:
    int __builtin_clzll(unsigned long long) nogil


cdef inline uint32_t bucket_of(int64_t latency_ns) noexcept nogil:
    cdef uint64_t value = <uint64_t> max(latency_ns, 0)
    cdef int shift
    if value < (1 << FINE_BITS):
        return <uint32_t> value
    shift = 63 - __builtin_clzll(value) - FINE_BITS
    return min(<uint32_t> ((shift << FINE_BITS) + (value >> shift)), <uint32_t> (BUCKETS - 1))


cdef inline double value_of(uint32_t bucket) noexcept nogil:
    """The middle of a bucket, in nanoseconds."""
    cdef int shift
    if bucket < (2 << FINE_BITS):
        return bucket
    shift = <int> (bucket >> FINE_BITS) - 1
    return <double> ((<uint64_t> bucket - (<uint64_t> shift << FINE_BITS)) << shift) + 0.5 * (<uint64_t> 1 << shift)


@cython.final
cdef class LatencyWindow:
    """Quantiles of the latencies in the last window_ns nanoseconds."""

    def __init__(self, list quantiles not None, int64_t window_ns):
        self.quantiles = quantiles
        self.half_ns = max(window_ns // 2, 1)
        self.half_began_ns = monotonic_ns()

    def __dealloc__(self):
        free(self.counts)

    cdef void insert(self, int64_t latency_ns, int64_t now_ns) noexcept:
        if now_ns - self.half_began_ns > self.half_ns:
            self.next_half(now_ns)
        if self.counts is NULL:
            self.counts = <uint32_t *> calloc(2 * BUCKETS, sizeof(uint32_t))
            if self.counts is NULL:
                return
        self.counts[self.current * BUCKETS + bucket_of(latency_ns)] += 1
        self.totals[self.current] += 1

    cdef void next_half(self, int64_t now_ns) noexcept:
        cdef int64_t halves = (now_ns - self.half_began_ns) // self.half_ns
        self.half_began_ns += halves * self.half_ns
        halves = min(halves, 2)
        while halves > 0:
            halves -= 1
            self.current ^= 1
            self.totals[self.current] = 0
            if self.counts is not NULL:
                memset(self.counts + self.current * BUCKETS, 0, BUCKETS * sizeof(uint32_t))

    def add(self, latency_ns: int):
        """Counts one latency in nanoseconds."""
        self.insert(latency_ns, monotonic_ns())

    @staticmethod
    def result(list windows not None) -> tuple:
        """(count, [(quantile, nanoseconds), ...]) over several windows with the same quantiles."""
        cdef LatencyWindow window
        cdef int64_t total = 0, now_ns = monotonic_ns()
        for window in windows:
            if now_ns - window.half_began_ns > window.half_ns:
                window.next_half(now_ns)
            total += window.totals[0] + window.totals[1]
        return total, [(quantile, find(windows, max(1, math.ceil(quantile * total))) if total else 0.0)
                       for quantile in (windows[0].quantiles if windows else [])]


cdef double find(list windows, int64_t rank):
    """The value of the rank-th smallest latency."""
    cdef LatencyWindow window
    cdef uint32_t bucket
    for bucket in range(BUCKETS):
        for window in windows:
            if window.counts is not NULL:
                rank -= window.counts[bucket] + window.counts[BUCKETS + bucket]
        if rank <= 0:
            return value_of(bucket)
    return value_of(BUCKETS - 1)


# ====================================================================== openbatch
# Multi-publishes.

@cython.final
cdef class OpenBatch:
    """The messages of a multi-publish."""

    def __dealloc__(self):
        fifo_free(&self.gathered)
        buffer_free(&self.staged)

    @staticmethod
    def sized(bytes body not None, int64_t end, uint32_t defer_ms=0):
        """The messages in the binary body of a multi-publish.

        end: end of the messages, from nsqc.wire.parser.check(); defer_ms: the delay of each message.
        """
        cdef OpenBatch self = OpenBatch.__new__(OpenBatch)
        self.begin(None, defer_ms)
        self.body = body
        self.take_sized(body, SIZE_BYTES, end, load_i32(body))
        return self

    @staticmethod
    def lines(bytes body not None, uint32_t defer_ms=0):
        """The non-empty lines of a text."""
        cdef OpenBatch self = OpenBatch.__new__(OpenBatch)
        self.begin(None, defer_ms)
        self.body = body
        self.source = LINES
        self.c_data = body
        self.end = len(body)
        self.at = next_line(self.c_data, 0, self.end)
        return self

    cdef void begin(self, StoreOwner topic, uint32_t defer_ms) noexcept:
        self.topic = topic
        self.defer_ms = defer_ms
        self.result = PUT_MEMORY
        self.open = self.admitted = False
        memset(&self.once, 0, sizeof(Once))

    cdef void take_sized(self, const char *c_data, int64_t at, int64_t end, int64_t count) noexcept:
        self.source = SIZED
        self.c_data = c_data
        self.at = at
        self.end = end
        self.count = count

    cdef void take_gathered(self) noexcept:
        self.source = GATHERED
        self.at = 0
        self.end = self.gathered.count

    cdef void measure(self, int64_t *count, int64_t *body_bytes) noexcept:
        cdef int64_t at = self.at, length
        count[0] = self.count
        body_bytes[0] = self.end - self.at - self.count * SIZE_BYTES
        if self.source == GATHERED:
            count[0] = self.gathered.count
            body_bytes[0] = self.gathered.bytes
        elif self.source == LINES:
            count[0] = body_bytes[0] = 0
            while at < self.end:
                length = line_bytes(self.c_data + at, self.end - at)
                count[0] += 1
                body_bytes[0] += length
                at = next_line(self.c_data, at + length, self.end)

    cdef bint refuse(self, int result) noexcept:
        self.result = result
        self.open = self.admitted = False
        return True

    cdef bint end_with(self, int result, Slicer slicer) noexcept:
        cdef Trash trash
        self.result = result
        self.at = self.end
        self.open = False
        if self.staged.c_data is not NULL:
            buffer_free(&self.staged)
        if self.gathered.count:
            trash = Trash.new(slicer)
            trash.take_fifo(&self.gathered)
            trash.start()
        return True


# ====================================================================== seams
# Abstract bases for upward calls of the broker.

cdef class TopicOwner:
    """The broker of a topic."""

    cdef StoreOwner make_channel(self, StoreOwner topic, bytes name):
        raise NotImplementedError

    cdef int on_channel_created(self, StoreOwner topic, StoreOwner channel) except -1:
        raise NotImplementedError

    cdef int on_channel_deleted(self, StoreOwner topic, StoreOwner channel) except -1:
        raise NotImplementedError

    cdef int on_last_channel_gone(self, StoreOwner topic) except -1:
        raise NotImplementedError

    cdef int on_topic_deleted(self, StoreOwner topic) except -1:
        raise NotImplementedError

    cdef void on_written(self, StoreOwner topic, StoreOwner channel, int error) noexcept:
        pass

    cdef void on_dead(self, StoreOwner channel, int error) noexcept:
        pass

    cdef void on_aging(self, StoreOwner topic) noexcept:
        pass

    cdef void on_bound(self, StoreOwner topic) noexcept:
        pass

    cdef int on_log_full(self, StoreOwner topic, bint full) except -1:
        return 0

    cdef int on_log_left(self, StoreOwner topic, TopicLog log) except -1:
        return 0

    cdef int on_refused(self, reason) except -1:
        return 0

    cdef void resume_later(self, StoreOwner topic) noexcept:
        pass


# ====================================================================== state of a topic
# The state of a topic, and its metrics.

cdef TopicFigures no_topic_figures
cdef DedupeFigures no_dedupe
TOPIC_FIGURES = figure_names(no_topic_figures) + figure_names(no_dedupe)
cdef tuple NO_DEDUPE = (None,) * len(figure_names(no_dedupe))


cdef class Storage:
    """Stores the messages of a topic."""

    cdef int put(self, TopicState topic, const char *c_body, uint32_t size, uint32_t defer_ms, const char *c_origin,
                 uint32_t origin_size) noexcept:
        return 0

    cdef bint put_batch(self, TopicState topic, OpenBatch batch) noexcept:
        return True

    cdef bint lags(self, TopicState topic) noexcept:
        return False

    cdef object write_path(self, TopicState topic):
        raise NotImplementedError

    cdef int64_t depth(self, TopicState topic) noexcept:
        return 0

    cdef int64_t disk_depth(self, TopicState topic) noexcept:
        return 0

    cdef void empty(self, TopicState topic) noexcept:
        pass

    cdef int add_channel(self, TopicState topic, StoreOwner channel, start) except -1:
        return 0

    cdef void channel_gone(self, TopicState topic) noexcept:
        pass

    cdef void pause(self, TopicState topic) noexcept:
        pass

    cdef void unpause(self, TopicState topic) noexcept:
        pass

    cdef int delete(self, TopicState topic) except -1:
        return 0

    cdef int64_t close(self, TopicState topic, bint written) except -1:
        return 0


cdef class TopicState(StoreOwner):
    """The fields of a topic, and what its channels call."""

    cdef void storage_changed(self) noexcept:
        pass

    cdef void on_channel_written(self, StoreOwner channel, int error, bint stuck) noexcept:
        pass

    cdef void on_moved(self) noexcept:
        pass

    cdef void on_room(self) noexcept:
        pass

    cdef int on_clients_gone(self, StoreOwner channel) except -1:
        return 0

    # ------------------------------------------------------------------ metrics

    cdef int64_t count_waiting(self) noexcept:
        cdef Storage storage
        cdef int64_t count = 0
        for storage in self.storages:
            count += storage.depth(self)
        return count

    cdef int64_t count_on_disk(self) noexcept:
        cdef Storage storage
        cdef int64_t count = 0
        for storage in self.storages:
            count += storage.disk_depth(self)
        return count

    cdef TopicLevels levels(self) noexcept:
        return TopicLevels(self.count_waiting(), self.count_on_disk())

    cdef TopicCounts counts(self) noexcept:
        return TopicCounts(self.message_count, self.message_bytes, self.expired_count, self.overflow_count)

    cdef TopicCounts metered(self) noexcept:
        cdef TopicCounts counts = self.counts()
        counts.message_count += self.taken_count
        counts.message_bytes += self.taken_bytes
        return counts

    cdef DedupeFigures dedupe(self) noexcept:
        return DedupeFigures(self.ids.count, <int64_t> self.deduplicated, <int64_t> self.ids.forgotten)

    def figures(self) -> tuple:
        """The numbers of /stats, in the order of TOPIC_FIGURES. None: the topic does not remember ids."""
        cdef TopicFigures figures = TopicFigures(self.levels(), self.counts())
        cdef DedupeFigures dedupe
        if self.ids is None:
            return figures_tuple(&figures, sizeof(figures)) + NO_DEDUPE
        dedupe = self.dedupe()
        return figures_tuple(&figures, sizeof(figures)) + figures_tuple(&dedupe, sizeof(dedupe))

    @property
    def depth(self) -> int:
        """Messages in the topic's own backlog."""
        return self.count_waiting()

    @property
    def backend_depth(self) -> int:
        """Those of them on disk."""
        return self.count_on_disk()

    @property
    def in_log(self) -> bool:
        """Whether it publishes to a log."""
        return self.logs

    @property
    def full(self) -> bool:
        """Whether large publishes should wait: the next commit is large enough."""
        return self.commit.is_full()

    @property
    def disk(self):
        """The DiskQueue of the backlog; None: no disk."""
        return self.backlog.disk

    @property
    def probe_path(self) -> str:
        """The file that receives messages."""
        return self.storage.write_path(self)


# ====================================================================== state of a channel
# The state of a channel, and its metrics.

cdef int64_t NEVER = INT64_MAX
cdef ChannelFigures no_channel_figures
CHANNEL_FIGURES = figure_names(no_channel_figures)


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
        """The numbers of /stats, in the order of CHANNEL_FIGURES."""
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
