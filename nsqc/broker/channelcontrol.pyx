"""Whether and when a channel delivers. See the .pxd."""

from libc.stdint cimport INT64_MAX, int64_t, uint32_t
from libc.stdlib cimport free

from nsqc.broker.again cimport again_forget
from nsqc.broker.channelrules cimport ChannelRules, rules_new
from nsqc.broker.consumer cimport Consumer
from nsqc.broker.dead cimport EXPIRED
from nsqc.broker.expiry cimport expiry_watch, leave_delivery, reason_to_leave
from nsqc.broker.lost cimport lost_add, lost_clear
from nsqc.broker.origin cimport origin_client
from nsqc.broker.ring cimport ready_remove
from nsqc.loop.watch cimport span_over
from nsqc.store.clock cimport monotonic_ns
from nsqc.store.delivery cimport Delivery, delivery_take
from nsqc.store.disk.unacked cimport Place
from nsqc.store.heap cimport Heap, heap_first, heap_moved, heap_push, heap_remove, heap_reserve
from nsqc.store.inflight cimport inflight_free
from nsqc.store.message cimport Message
from nsqc.store.slices cimport Trash

cdef int64_t NEVER = INT64_MAX
cdef int64_t NO_MEMORY_NS = 1000000000      # extends a delivery that cannot be ended for lack of memory


cdef class ChannelControl(ChannelState):
    """The parts of a channel that do not run per message."""

    cdef void send(self, Message *message, uint32_t attempts, Place *place, int64_t offset) noexcept:
        pass

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
            self.send(delivery_take(delivery), attempts, place, offset)
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

    def set_rule(self, rule, bytes dead_letter=b""):
        """Sets its nsqc.options.channel_keys.ChannelRule, and the dead-letter topic's name. rule: None: no rules."""
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
        cdef Trash trash = Trash.new(self.slicer)
        lost_clear(&self.lost)
        if self.backlog.disk is not None:
            self.backlog.disk.drop_out()
        trash.take_heap(0, &self.timeouts)
        trash.take_heap(1, &self.delayed)
        inflight_free(&self.in_flight)
        trash.start()
        trash = Trash.new(self.slicer)
        self.sender = None
        trash.take_heap(0, &self.dead)
        trash.take_heap(1, &self.sent)
        trash.start()
        if self.owner is not None:
            self.owner.on_moved()
        trash = Trash.new(self.slicer)
        trash.take_heap(0, &self.front)
        trash.take_heap(1, &self.again.heap)
        again_forget(&self.again)
        trash.start()

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


cdef bint stay(ChannelState channel, Delivery *delivery, Heap *heap) noexcept:
    delivery.deadline_ns = channel.clock.monotonic + NO_MEMORY_NS
    heap_moved(heap, delivery)
    return False


cdef int64_t next_deadline(ChannelState channel) noexcept:
    cdef Delivery *delivery = heap_first(&channel.timeouts)
    cdef int64_t first = NEVER if delivery is NULL else delivery.deadline_ns
    delivery = heap_first(&channel.delayed)
    if delivery is not NULL and delivery.deadline_ns < first:
        first = delivery.deadline_ns
    if channel.cursor is not None and 0 < channel.cursor.next_due() < first:
        first = channel.cursor.next_due()
    return min(first, channel.resume_ns, channel.look_ns)
