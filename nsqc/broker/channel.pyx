"""A channel: distributes messages over its consumers and keeps each until it is finished."""

cimport cython
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t

from nsqc.broker.again cimport again_drop_logged
from nsqc.broker.channelcontrol cimport has_room, stay, take_out
from nsqc.broker.channelrules cimport rules_delay
from nsqc.broker.channelstate cimport TO_DELIVERY, TO_FINISH, check_alive, count_time, drop_logged, unlikely
from nsqc.broker.consumer cimport wants_more
from nsqc.broker.dead cimport STAYS, LeaveReason, dead_has_room, dead_recall
from nsqc.broker.expiry cimport (due_or_expired, expire_deferred, expire_waiting, leave_delivery, leave_exhausted,
                                 pop_again, reason_to_leave, wait_to_expire, withheld)
from nsqc.broker.lost cimport RETURNED, lost_clear, lost_has, lost_step
from nsqc.broker.origin cimport DEAD_DISCONNECTED, DEAD_REQUEUED, DEAD_TIMED_OUT
from nsqc.broker.overflow cimport surely_fits, trim_channel
from nsqc.broker.ring cimport ready_add, ready_remove
from nsqc.store.backlog cimport PUT_NO_MEMORY
from nsqc.store.delivery cimport delivery_free, delivery_new, delivery_take
from nsqc.store.fifo cimport Entry
from nsqc.store.heap cimport heap_first, heap_moved, heap_push, heap_remove, heap_reserve
from nsqc.store.inflight cimport inflight_add, inflight_find, inflight_remove
from nsqc.store.message cimport message_ref, message_unref
from nsqc.store.slices cimport SIZE_SHIFT, STEPS

cdef int64_t NO_OFFSET = -1

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

    cdef void send(self, Message *message, uint32_t attempts, Place *place, int64_t offset) noexcept:
        self._deliver(message, attempts, place, offset)

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
        if wants_more(consumer):
            if unlikely(not consumer.listed):
                relist(self, consumer)
        elif unlikely(consumer.listed):
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
        drop_logged(&self.dead)
        self.owner.on_moved()
        drop_logged(&self.front)
        again_drop_logged(&self.again)
        self.cursor.reset(min(max(offset, self.cursor.log.first_offset()), self.cursor.log.next))
        for consumer in self.clients.values():
            consumer.in_flight = 0
            self.update(consumer)
        self._throttle()
        self.slicer.add(self)
