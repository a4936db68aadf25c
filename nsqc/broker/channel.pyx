"""A channel: distributes messages over its consumers and keeps each until it is finished. See the .pxd."""

cimport cython
from libc.stdint cimport INT64_MAX, int64_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from nsqc.broker.figures cimport (ChannelFigures, ChannelLevels, LatencyWindow, figure_names, figures_tuple)
from nsqc.broker.leaving cimport (DEAD_DISCONNECTED, DEAD_REQUEUED, DEAD_TIMED_OUT, EXPIRED, STAYS, LeaveReason,
                                  dead_has_room, dead_recall, due_or_expired, expire_deferred, expire_waiting,
                                  expiry_watch, leave_delivery, leave_exhausted, origin_client, pop_again,
                                  reason_to_leave, surely_fits, trim_channel, wait_to_expire, withheld)
from nsqc.broker.rules cimport (RETURNED, ChannelRules, again_drop_logged, again_forget, lost_add, lost_clear,
                                lost_free, lost_has, lost_step, rules_delay, rules_new)
from nsqc.loop.uv cimport span_over
from nsqc.metrics.times cimport TwoTimes, times_add
from nsqc.store.backlog cimport PUT_NO_MEMORY, Backlog
from nsqc.store.disk.queue cimport DiskQueue
from nsqc.store.log.segment cimport segments_rank
from nsqc.store.log.topiclog cimport TopicLog
from nsqc.store.memory cimport monotonic_ns
from nsqc.store.message cimport (Delivery, Entry, Heap, Message, Place, delivery_free, delivery_new, delivery_take,
                                 heap_drop_logged, heap_first, heap_least, heap_moved, heap_push, heap_remove,
                                 heap_reserve, inflight_add, inflight_find, inflight_free, inflight_remove,
                                 message_ref, message_unref)
from nsqc.store.work cimport SIZE_SHIFT, STEPS, Commit, Slicer, Trash


# ====================================================================== consumer

cdef class Consumer:
    """Abstract base of sessions."""

    cdef void deliver(self, Message *message, uint16_t attempts) noexcept:
        pass

    cdef void dismiss(self) noexcept:
        pass

    def stats(self, topic: str | None = None) -> ClientStats:
        """ClientStats; its publish count is that of topic, or else the first."""
        raise NotImplementedError

    def disconnect(self, user: str) -> None:
        """Closes the connection, as a user wants."""
        raise NotImplementedError


# ====================================================================== channel
cdef int64_t NEVER = INT64_MAX
cdef ChannelFigures no_channel_figures
CHANNEL_FIGURES: tuple[str, ...] = figure_names(no_channel_figures)
cdef int64_t NO_OFFSET = -1
cdef int64_t NO_MEMORY_NS = 1000000000      # extends a delivery that cannot be ended for lack of memory

cdef enum:
    DUE_AT_ONCE = 1024          # deferred messages of a log between two looks at the clock

cdef uint64_t sample_state = 0x2545F4914F6CDD1D


cdef inline uint32_t sample_roll() noexcept:
    """0 to 99; xorshift is random enough for sampling."""
    global sample_state
    sample_state ^= sample_state << 13
    sample_state ^= sample_state >> 7
    sample_state ^= sample_state << 17
    return <uint32_t> ((sample_state >> 11) % 100)


cdef void relist(Channel channel, Consumer consumer) noexcept:
    """Enters or leaves the ring after wants_more() has changed."""
    if consumer.listed:
        ready_remove(&channel.ready, consumer)
    elif not channel.exiting:
        ready_add(&channel.ready, consumer)


@cython.final
cdef class Channel:
    """One channel of a topic. Created by Topic.get_channel()."""

    def __init__(self, bytes name not None, bint ephemeral, DiskQueue disk, int64_t max_memory, Commit commit not None,
                 Clock clock not None, Topic owner not None, timers, LatencyWindow latency,
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
        drop_deliveries(self, None)
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
    def disk(self) -> DiskQueue | None:
        """The DiskQueue of the backlog; None: no disk."""
        return self.backlog.disk

    @property
    def consumers(self) -> list[Consumer]:
        """The consumers, in order of arrival."""
        return list(self.clients.values())

    # ------------------------------------------------------------------ metrics

    def figures(self) -> tuple[int, ...]:
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

    def deliveries(self) -> list[int]:
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
    def position(self) -> int | None:
        """The first offset of the log that was never delivered; None: the topic has no log."""
        return None if self.cursor is None else self.cursor.next

    @property
    def oldest(self) -> int | None:
        """The lowest unfinished offset of the log; None: the topic has no log."""
        cdef int64_t least
        if self.cursor is None:
            return None
        least = self.cursor.least_waiting()
        least = heap_least(&self.timeouts, least)
        least = heap_least(&self.front, least)
        least = heap_least(&self.again.heap, least)
        least = heap_least(&self.dead, least)
        return heap_least(&self.sent, least)

    def forget_removed(self) -> bool:
        """Drops requeued and deferred messages that retention removed from the log; checks some of them. Whether there
        may be more."""
        return self.cursor is not None and self.cursor.forget_removed()

    def restore_delays(self, delays: dict[bytes, int]):
        """Sets the due times, in wall-clock nanoseconds, of messages that an earlier run wrote to disk."""
        self.backlog.delays.update(delays)

    # ------------------------------------------------------------------ from the topic

    cdef bint fits(self, uint32_t defer_ms) noexcept:
        return defer_ms != 0 or self._delivers_at_once() or self.backlog.fits(0)

    cdef bint _delivers_at_once(self) noexcept:
        return self.ready.c_next is not NULL and not self.halted and self._nothing_waits() and has_room(self)

    cdef int put(self, Message *message, uint32_t attempts) noexcept:
        cdef int result = 0
        check_alive(self)
        if unlikely(self.rules is not NULL) and (self.rules.watches or self._delivers_at_once()):
            result = self._put_by_rules(message, attempts)
        elif self._delivers_at_once():
            self._deliver(message, attempts, NULL, NO_OFFSET)
        else:
            result = self.backlog.put(message, attempts, 0, False, NULL)
        if result != PUT_NO_MEMORY:
            self.counts.message_count += 1
        return result

    cdef int _put_by_rules(self, Message *message, uint32_t attempts) noexcept:
        cdef int result
        if self._delivers_at_once() and reason_to_leave(self, message, attempts) == STAYS:
            self._deliver(message, attempts, NULL, NO_OFFSET)
            return 0
        self._watch(message.timestamp_ns)
        result = self.backlog.put(message, attempts, 0, False, NULL)
        if self.rules.trims and not surely_fits(self, 0) and not trim_channel(self):
            self.slicer.add(self)
        return result

    cdef int put_deferred(self, Message *message, uint32_t attempts, uint32_t defer_ms) noexcept:
        if not has_room(self):
            return PUT_NO_MEMORY
        self.counts.message_count += 1
        self._defer(message, attempts, <int64_t> defer_ms * 1000000, NULL)
        return 0

    cdef int put_copy(self, Message *message, uint32_t attempts, uint32_t defer_ms) noexcept:
        cdef int result
        if self.backlog.disk is None:
            return self.put_deferred(message, attempts, defer_ms) if defer_ms else self.put(message, attempts)
        if unlikely(self.rules is not NULL):
            self._watch(message.timestamp_ns)
        result = self.backlog.put_copy(message, attempts, defer_ms)
        if result != PUT_NO_MEMORY:
            self.counts.message_count += 1
        return result

    # ------------------------------------------------------------------ from consumers

    cdef int finish(self, Consumer consumer, const char *c_id) noexcept:
        cdef int result
        cdef Delivery *delivery = self._claim(consumer, c_id, &result)
        if delivery is NULL:
            return result
        take_out(self, delivery)
        consumer.in_flight -= 1
        consumer.finish_count += 1
        if self.latency is not None:
            self.latency.insert(self.clock.wall - delivery.message.timestamp_ns, self.clock.monotonic)
        count_time(self, TO_FINISH, delivery.message)
        if delivery.offset >= 0:
            self.cursor.done(delivery.offset)
        else:
            self.backlog.done(delivery.place)
        delivery_free(delivery)
        self.update(consumer)
        if unlikely(self.throttled):
            self._throttle()
        return CLAIMED

    cdef int requeue(self, Consumer consumer, const char *c_id, int64_t delay_ns) noexcept:
        cdef int result
        cdef Delivery *delivery = self._claim(consumer, c_id, &result)
        if delivery is NULL:
            return result
        if unlikely(self.rules is not NULL):
            delivery.reason = DEAD_REQUEUED
            if delay_ns <= 0:
                delay_ns = rules_delay(self.rules, delivery.attempts)
        if not self._come_back(delivery, delay_ns):
            return CLAIMED
        consumer.in_flight -= 1
        consumer.requeue_count += 1
        self.counts.requeue_count += 1
        self.update(consumer)
        if unlikely(self.throttled):
            self._throttle()
        if unlikely(self.rules is not NULL) and self.rules.trims:
            self.slicer.add(self)       # the limit may be exceeded
        return CLAIMED

    cdef int touch(self, Consumer consumer, const char *c_id) noexcept:
        cdef int result
        cdef Delivery *delivery = self._claim(consumer, c_id, &result)
        if delivery is NULL:
            return result
        delivery.deadline_ns = min(self.clock.monotonic + consumer.msg_timeout_ns,
                                   delivery.delivered_ns + self.max_msg_timeout_ns)
        heap_moved(&self.timeouts, delivery)
        self._arm()
        return CLAIMED

    cdef Delivery *_claim(self, Consumer consumer, const char *c_id, int *result) noexcept:
        """The delivery with this id, if it is in flight to consumer; else NULL and why."""
        cdef Delivery *delivery = inflight_find(&self.in_flight, c_id, consumer.id)
        check_alive(self)
        if delivery is NULL:
            result[0] = NOT_IN_FLIGHT
        elif delivery.owner != consumer.id:
            result[0] = NOT_OWNER
            return NULL
        return delivery

    # ------------------------------------------------------------------ delivery

    cdef bint pump(self) noexcept:
        cdef Entry entry
        cdef int steps = STEPS
        cdef bint from_log
        check_alive(self)
        if self.exiting:
            return True
        if unlikely(self.front.count) and not self._deliver_front():
            return True
        from_log = self._reads_log()
        while self.ready.c_next is not NULL and not self.halted:
            if not has_room(self):
                self._try_again()
                return True
            if unlikely(self.rules is not NULL) and self.rules.dies and not dead_has_room(self):
                if self.dead.count + self.sent.count == 0:
                    self._try_again()
                return True         # or dead_ended() follows
            if not (unlikely(self.again.heap.count) and pop_again(self, &entry)
                    or (self._pop_logged(&entry) if from_log else self._pop(&entry))):
                break
            # A large message takes as long to send as many small ones.
            steps -= 1 + <int> (entry.message.size >> SIZE_SHIFT)
            if entry.defer_ms:
                self._defer(entry.message, entry.attempts, <int64_t> entry.defer_ms * 1000000, self.place)
            elif self.rules is NULL or not withheld(self, &entry):
                self._deliver(entry.message, entry.attempts, self.place, self.offset)
            if steps <= 0:
                if self.slicer.over():
                    self.slicer.add(self)
                    return False
                steps = STEPS
                from_log = self._reads_log()
        if self.cursor is not None and self.cursor.deferred.count:
            self._arm()         # it has read deferred messages
        return True

    cdef bint _reads_log(self) noexcept:
        """Whether all messages come from the log, until pump() ends."""
        return (self.cursor is not None and self.backlog.depth() == 0
                and (self.log_first or not self.owner.has_queued()))

    cdef bint _pop_logged(self, Entry *entry) noexcept:
        if not self.cursor.pop(entry):
            return False
        self.place = NULL
        self.offset = self.cursor.offset
        return True

    cdef bint _pop(self, Entry *entry) noexcept:
        if self.cursor is None or (self.backlog.depth() > 0 and not (self.log_first and not self.cursor.is_drained())):
            self.offset = NO_OFFSET
            if not self.backlog.pop(entry):
                return False
            self.place = self.backlog.place
            return True
        return (self.log_first or not self.owner.has_queued()) and self._pop_logged(entry)

    cdef bint _nothing_waits(self) noexcept:
        return (self.backlog.depth() == 0 and self.again.heap.count == 0
                and (self.cursor is None or self.cursor.is_drained()))

    cdef void on_grown(self, int64_t records) noexcept:
        self.counts.message_count += <uint64_t> records
        if unlikely(self.rules is not NULL):
            self._watch(self.clock.wall)
        if self.ready.c_next is not NULL and not self.halted and not self.exiting:
            if self.slicer.over():
                self.slicer.add(self)
            else:
                self.pump()

    cdef void set_cursor(self, Cursor cursor, bint log_first) noexcept:
        self.cursor = cursor
        self.log_first = log_first

    cdef void _deliver(self, Message *message, uint32_t attempts, Place *place, int64_t offset) noexcept:
        cdef Consumer consumer = <Consumer> self.ready.c_next
        cdef Delivery *delivery
        self.ready.c_next = consumer.c_next
        if consumer.sample_rate and sample_roll() > <uint32_t> consumer.sample_rate:
            message_unref(message)      # as with nsqd, messages outside the sample are dropped
            if offset >= 0:
                self.cursor.done(offset)
            else:
                self.backlog.done(place)
            return
        delivery = delivery_new(message, <uint16_t> (attempts + 1))
        delivery.place = place
        delivery.offset = offset
        delivery.owner = consumer.id
        delivery.delivered_ns = self.clock.monotonic
        if attempts == 0:
            count_time(self, TO_DELIVERY, message)
        delivery.deadline_ns = self.clock.monotonic + consumer.msg_timeout_ns
        inflight_add(&self.in_flight, delivery)
        heap_push(&self.timeouts, delivery)
        if delivery.deadline_ns < self.alarm_ns:
            self._arm()
        consumer.in_flight += 1
        consumer.message_count += 1
        consumer.deliver(message, delivery.attempts)
        if unlikely(not wants_more(consumer)):
            relist(self, consumer)
        if unlikely(self.rules is not NULL) and self.rules.paces:
            self.paced_ns = max(self.paced_ns, self.clock.monotonic) + self.rules.interval_ns
            self._throttle()

    cdef bint _come_back(self, Delivery *delivery, int64_t delay_ns) noexcept:
        cdef LeaveReason reason = STAYS
        if unlikely(self.rules is not NULL):
            reason = reason_to_leave(self, delivery.message, delivery.attempts)
            if reason != STAYS:
                return leave_delivery(self, delivery, &self.timeouts, reason) or stay(self, delivery, &self.timeouts)
        if unlikely(self.rules is not NULL) and self.rules.ordered:
            return self._to_front(delivery, delay_ns)
        if delay_ns > 0 and delivery.offset >= 0:
            if self.cursor.defer(delivery.offset, delivery.attempts, self.clock.monotonic + delay_ns) < 0:
                return stay(self, delivery, &self.timeouts)
            take_out(self, delivery)
            delivery_free(delivery)
            self._arm()
        elif delay_ns > 0 and heap_reserve(&self.delayed):
            take_out(self, delivery)
            delivery.owner = 0
            self._delay(delivery, delay_ns)
        else:
            return self._put_back(delivery, &self.timeouts)
        return True

    cdef void _delay(self, Delivery *delivery, int64_t delay_ns) noexcept:
        """With room: defers a delivery that is in no heap until it is due, or until it expires if that is earlier."""
        delivery.deadline_ns = delivery.delivered_ns = self.clock.monotonic + delay_ns
        if unlikely(self.rules is not NULL):
            delivery.deadline_ns = due_or_expired(self, delivery.message, delivery.delivered_ns)
        heap_push(&self.delayed, delivery)
        self._arm()

    cdef bint _came_due(self, Delivery *delivery) noexcept:
        """Ends a deferred delivery that has rules, or whose alarm came before it was due."""
        cdef LeaveReason reason = STAYS
        if self.rules is not NULL:
            reason = reason_to_leave(self, delivery.message, delivery.attempts)
        if reason != STAYS:
            return leave_delivery(self, delivery, &self.delayed, reason) or stay(self, delivery, &self.delayed)
        if delivery.delivered_ns <= self.clock.monotonic:
            return self._put_back(delivery, &self.delayed)
        delivery.deadline_ns = delivery.delivered_ns        # the rule for its expiry has changed
        heap_moved(&self.delayed, delivery)
        return True

    cdef bint _put_back(self, Delivery *delivery, Heap *heap) noexcept:
        """Queues a message after the waiting ones. It was accepted before, so it is never dropped."""
        cdef uint16_t attempts = delivery.attempts
        cdef Place *place = delivery.place
        cdef int64_t offset = delivery.offset
        cdef bint delivers_at_once = self._delivers_at_once()
        if delivers_at_once:
            if offset >= 0:
                self.cursor.came_back(offset, attempts)
        elif unlikely(self.rules is not NULL) and wait_to_expire(self, delivery, heap):
            self._watch(delivery.message.timestamp_ns)
            return True
        elif not self._wait_again(delivery):
            return stay(self, delivery, heap)
        if delivery.owner:
            inflight_remove(&self.in_flight, delivery)
        heap_remove(heap, delivery)
        if delivers_at_once:
            self._deliver(delivery_take(delivery), attempts, place, offset)
        else:
            if self.backlog.disk is None and offset < 0:
                self.backlog.done(place)
            delivery_free(delivery)
        return True

    cdef bint _wait_again(self, Delivery *delivery) noexcept:
        """Returns its message to the log or the backlog."""
        if delivery.offset >= 0:
            return self.cursor.put_back(delivery.offset, delivery.attempts) == 0
        message_ref(delivery.message)
        if self.backlog.put(delivery.message, delivery.attempts, 0, True, delivery.place) == PUT_NO_MEMORY:
            message_unref(delivery.message)
            return False
        return True

    cdef void _defer(self, Message *message, uint32_t attempts, int64_t delay_ns, Place *place) noexcept:
        """With room: defers a message by delay_ns."""
        cdef Delivery *delivery = delivery_new(message, <uint16_t> attempts)
        delivery.place = place
        self._delay(delivery, delay_ns)

    # ------------------------------------------------------------------ ready consumers

    cdef void update(self, Consumer consumer) noexcept:
        check_alive(self)
        if unlikely(wants_more(consumer) != consumer.listed):
            relist(self, consumer)

    # ------------------------------------------------------------------ time

    cdef bint run(self) noexcept:
        if self.deserted:
            self.deserted = False
            if not self.clients and not self.exiting:
                self.owner.on_clients_gone(self)
        if self.exiting:
            return False
        self.clock.refresh()
        while self.lost.count and lost_step(&self.lost, &self.timeouts, STEPS):
            if self.slicer.over():
                return True
        if unlikely(self.undated) and self.rules is not NULL and not expire_deferred(self):
            return True
        if not self._expire():
            if self.backlog.commit.is_full():
                self.backlog.commit.block(self)
                return False
            return True
        if unlikely(self.rules is not NULL) and not (leave_exhausted(self) and expire_waiting(self)
                                                     and trim_channel(self)):
            return True
        if unlikely(self.dead.count) and self.sender is None and not self.retrying:
            self.owner.owner.on_dead(self, 0)
        if unlikely(self.throttled):
            self._throttle()
        self._arm()
        return not self.pump()

    cdef bint _expire(self) noexcept:
        cdef Delivery *delivery
        cdef Consumer consumer
        cdef int steps = STEPS
        cdef int64_t owner
        while True:
            delivery = heap_first(&self.timeouts)
            if delivery is NULL or delivery.deadline_ns > self.clock.monotonic:
                break
            owner = delivery.owner
            consumer = self.clients.get(owner)
            if consumer is not None:
                # Before the message is requeued: the same consumer may get it again.
                consumer.in_flight -= 1
                self.update(consumer)
            if unlikely(self.rules is not NULL):
                delivery.reason = DEAD_DISCONNECTED if owner == RETURNED else DEAD_TIMED_OUT
            if self._come_back(delivery, 0 if self.rules is NULL or owner == RETURNED
                               else rules_delay(self.rules, delivery.attempts)):
                if owner == RETURNED:
                    self.counts.requeue_count += 1
                else:
                    self.counts.timeout_count += 1
                if unlikely(self.lost.count) and lost_has(&self.lost, owner):
                    self.lost.left -= 1
            elif consumer is not None:
                consumer.in_flight += 1
                self.update(consumer)
            steps -= 1
            if steps == 0:
                if self.slicer.over() or self.backlog.commit.is_full():
                    return False
                steps = STEPS
        while self.cursor is not None and not self.cursor.expire(self.clock.monotonic, DUE_AT_ONCE):
            if self.slicer.over():
                return False
        while True:
            delivery = heap_first(&self.delayed)
            if delivery is NULL or delivery.deadline_ns > self.clock.monotonic:
                return True
            if unlikely(self.rules is not NULL or delivery.delivered_ns > self.clock.monotonic):
                self._came_due(delivery)
            else:
                self._put_back(delivery, &self.delayed)
            steps -= 1
            if steps == 0:
                if self.slicer.over() or self.backlog.commit.is_full():
                    return False
                steps = STEPS

    # ------------------------------------------------------------------ administration

    def unpause(self):
        """Starts deliveries again."""
        self.clock.refresh()
        self.slicer.begin(self.clock.monotonic)
        self.paused = False
        self._set_halted()
        self.pump()

    def empty(self):
        """Drops all messages: waiting, in flight and deferred. Consumers are ready for new ones."""
        cdef Consumer consumer
        self._drop_all()
        self.backlog.empty()
        if self.cursor is not None:
            self.cursor.reset(self.cursor.log.visible)
        for consumer in self.clients.values():
            consumer.in_flight = 0
            self.update(consumer)
        self._throttle()

    def seek(self, int64_t offset):
        """Continues at an offset of the log. No messages of the log are in flight, requeued or deferred after that."""
        cdef Consumer consumer
        cdef Delivery *delivery
        lost_clear(&self.lost)
        while self.timeouts.count:
            delivery = heap_first(&self.timeouts)
            if delivery.offset < 0 and not self._wait_again(delivery):
                raise MemoryError
            take_out(self, delivery)
            delivery_free(delivery)
        if not dead_recall(self):
            raise MemoryError
        heap_drop_logged(&self.dead)
        self.owner.on_moved()
        heap_drop_logged(&self.front)
        again_drop_logged(&self.again)
        self.cursor.reset(min(max(offset, self.cursor.log.first_offset()), self.cursor.log.next))
        for consumer in self.clients.values():
            consumer.in_flight = 0
            self.update(consumer)
        self._throttle()
        self.slicer.add(self)

    # ------------------------------------------------------------------ whether and when it delivers

    cdef void _watch(self, int64_t timestamp_ns) noexcept:
        expiry_watch(self, timestamp_ns)
        if self.look_ns < self.alarm_ns:
            self._arm()
        if self.rules.trims and self.cursor is not None:
            self.slicer.add(self)

    cdef bint _to_front(self, Delivery *delivery, int64_t delay_ns) noexcept:
        if not heap_reserve(&self.front):
            return stay(self, delivery, &self.timeouts)
        take_out(self, delivery)
        delivery.owner = 0
        delivery.deadline_ns = self.clock.monotonic + delay_ns
        heap_push(&self.front, delivery)
        if delivery.offset >= 0:
            self.cursor.came_back(delivery.offset, delivery.attempts)
        self._watch(delivery.message.timestamp_ns)
        self._throttle()
        return True

    cdef bint _deliver_front(self) noexcept:
        cdef Delivery *delivery
        cdef Place *place
        cdef int64_t offset
        cdef uint32_t attempts
        while self.front.count:
            self._throttle()
            if (self.ready.c_next is NULL or self.paused or self.draining or self.resume_ns != NEVER
                    or self.rules is not NULL and 0 < self.rules.max_in_flight <= self.timeouts.count):
                return False
            if not has_room(self):
                self._try_again()
                return False
            delivery = heap_first(&self.front)
            if self.rules is not NULL and reason_to_leave(self, delivery.message, delivery.attempts) == EXPIRED:
                if not leave_delivery(self, delivery, &self.front, EXPIRED):
                    self._try_again()
                    return False
                continue
            heap_remove(&self.front, delivery)
            place, offset, attempts = delivery.place, delivery.offset, delivery.attempts
            self._deliver(delivery_take(delivery), attempts, place, offset)
        self._throttle()
        return True

    cdef void _throttle(self) noexcept:
        """While deliveries are in front, no other messages are delivered: pump() handles these first."""
        cdef ChannelRules *rules = self.rules
        cdef bint throttled = self.front.count > 0
        cdef int64_t resume_ns = self.clock.monotonic
        if rules is not NULL:
            throttled |= 0 < rules.max_in_flight <= self.timeouts.count
            if rules.interval_ns:
                resume_ns = max(resume_ns, self.paced_ns - rules.burst_ns)
            if rules.ordered and self.front.count:
                resume_ns = max(resume_ns, heap_first(&self.front).deadline_ns)
        self.resume_ns = NEVER
        if resume_ns > self.clock.monotonic:
            throttled = True
            self.resume_ns = resume_ns
            if resume_ns < self.alarm_ns:
                self._arm()
        if throttled != self.throttled:
            self.throttled = throttled
            self._set_halted()

    cdef void _set_halted(self) noexcept:
        self.halted = self.paused or self.draining or self.throttled
        if (not self.halted or self.front.count) and self.ready.c_next is not NULL and not self.exiting:
            self.slicer.add(self)

    # ------------------------------------------------------------------ time

    cdef void _arm(self) noexcept:
        """Sets the alarm for the next deadline, where nsqd scans random channels every 100 ms."""
        cdef int64_t first = next_deadline(self)
        if first < self.alarm_ns:
            self.alarm_ns = first
            self.timers.arm(self, first)

    def expire(self):
        """Called by the timers at the alarm: requeues messages that have timed out or are due."""
        cdef int64_t began_ns = monotonic_ns()
        self.clock.refresh()
        self.slicer.begin(self.clock.monotonic)
        self.alarm_ns = NEVER
        if self.run():
            self.slicer.add(self)
        span_over(monotonic_ns() - began_ns, b"deadlines of", self)

    def resume(self):
        """Continues deliveries after memory or the disk failed."""
        self.retrying = False
        self.slicer.add(self)

    cdef void _try_again(self) noexcept:
        if not self.retrying and not self.exiting:
            self.retrying = True
            self.timers.resume_later(self)

    # ------------------------------------------------------------------ clients

    def add_client(self, Consumer consumer not None) -> bool:
        """Adds a consumer; False: the channel already has max_consumers."""
        if self.max_consumers and len(self.clients) >= self.max_consumers:
            return False
        self.clients[consumer.id] = consumer
        return True

    def remove_client(self, Consumer consumer not None):
        """Removes a consumer. Messages in flight to it stay in flight until they time out, unless the channel has
        requeue_on_disconnect.

        An ephemeral channel is deleted after its last consumer, in its own slice: the caller may be in the middle of a
        command of the consumer, or of this channel's messages.
        """
        ready_remove(&self.ready, consumer)
        if self.clients.pop(consumer.id, None) is None:
            return
        self.left[consumer.distance] += consumer.message_count
        if self.rules is not NULL and self.rules.max_attempts and consumer.in_flight > 0:
            origin_client(self, consumer, consumer.id)
        if self.rules is not NULL and self.rules.requeue_on_disconnect and not self.exiting:
            lost_add(&self.lost, consumer.id, consumer.in_flight)
            self.slicer.add(self)
        if self.ephemeral and not self.clients and not self.exiting:
            self.deserted = True
            self.slicer.add(self)

    # ------------------------------------------------------------------ administration

    cdef void set_draining(self, bint draining) noexcept:
        self.draining = draining
        self._set_halted()

    def set_rule(self, rule: ChannelRule | None, bytes dead_letter=b""):
        """Sets its nsqc.options.rules.ChannelRule, and the dead-letter topic's name. rule: None: no rules."""
        cdef ChannelRules *rules = rules_new(rule, len(dead_letter) > 0)
        free(self.rules)
        self.rules = rules
        self.rule = rule if rules is not NULL else None
        self.dead_waits = False
        if dead_letter:
            self.dead_letter = dead_letter      # without a rule, messages already in dead still go there
        self.clock.refresh()
        self.paced_ns = 0
        self._throttle()
        if self.front.count or rules is not NULL:
            self.slicer.add(self)

    cdef void clock_was_set(self) noexcept:
        if self.rules is not NULL and self.rules.message_ttl_ns > 0:
            self.undated = self.delayed.count
            self.look_ns = 0
            self.slicer.add(self)

    def pause(self):
        """Stops deliveries."""
        self.paused = True
        self._set_halted()

    cdef void _drop_all(self) noexcept:
        """Drops messages in flight or deferred, after the backlog has forgotten its places; frees memory in slices."""
        lost_clear(&self.lost)
        if self.backlog.disk is not None:
            self.backlog.disk.drop_out()
        self.sender = None
        drop_deliveries(self, self.slicer)
        if self.owner is not None:
            self.owner.on_moved()

    # ------------------------------------------------------------------ failed writes

    cdef void on_written(self, int error, int64_t records, int64_t body_bytes) noexcept:
        """If it failed, the backlog keeps its messages, and the topic holds publishers."""
        cdef bint before = self.stuck
        self.stuck = error != 0
        if (error or before) and self.owner is not None:
            self.owner.on_channel_written(self, error, before)
        if error:
            self.slicer.add(self)       # its messages can still be delivered

    cdef void on_readable(self) noexcept:
        if (self.ready.c_next is not NULL or self.rules is not NULL) and not self.exiting:
            self.slicer.add(self)

    cdef void on_unreadable(self) noexcept:
        """Nothing is lost: the read is retried later."""
        self._try_again()


cdef bint stay(Channel channel, Delivery *delivery, Heap *heap) noexcept:
    delivery.deadline_ns = channel.clock.monotonic + NO_MEMORY_NS
    heap_moved(heap, delivery)
    return False


cdef void drop_deliveries(Channel channel, Slicer slicer) noexcept:
    """Frees all deliveries, in slices; without a slicer at once."""
    cdef Heap *heaps[6]
    cdef Trash trash
    cdef int index
    heaps[0], heaps[1], heaps[2] = &channel.timeouts, &channel.delayed, &channel.dead
    heaps[3], heaps[4], heaps[5] = &channel.sent, &channel.front, &channel.again.heap
    for index in range(0, 6, 2):
        trash = Trash.new(slicer)
        trash.take_heap(0, heaps[index])
        trash.take_heap(1, heaps[index + 1])
        if slicer is not None:
            trash.start()
    inflight_free(&channel.in_flight)
    again_forget(&channel.again)


cdef int64_t next_deadline(Channel channel) noexcept:
    cdef Delivery *delivery = heap_first(&channel.timeouts)
    cdef int64_t first = NEVER if delivery is NULL else delivery.deadline_ns
    delivery = heap_first(&channel.delayed)
    if delivery is not NULL and delivery.deadline_ns < first:
        first = delivery.deadline_ns
    if channel.cursor is not None and 0 < channel.cursor.next_due() < first:
        first = channel.cursor.next_due()
    return min(first, channel.resume_ns, channel.look_ns)


cdef void count_other_time(Channel channel, int which, int64_t ns) noexcept:
    """Counts a time that differs from the previous message's."""
    if channel.times is NULL:
        channel.times = <TwoTimes *> calloc(1, sizeof(TwoTimes))
        if channel.times is NULL:
            return
    times_add(&channel.times.of[which], ns)
