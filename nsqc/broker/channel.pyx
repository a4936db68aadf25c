"""A channel: distributes messages over its consumers and keeps each until it is finished.

nsqd scans random channels every 100 ms for messages whose time has come. A channel here knows its next deadline and has
the timers call expire() then.
"""

cimport cython
from libc.errno cimport ENOMEM
from libc.stdint cimport INT64_MAX, int64_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from nsqc.broker.consumer cimport DISTANCES, wants_more
from nsqc.broker.ring cimport ready_add, ready_remove
from nsqc.broker.seams cimport ChannelOwner
from nsqc.loop.watch cimport span_over
from nsqc.metrics.times cimport TwoTimes, times_add
from nsqc.store.backlog cimport Commit, PUT_NO_MEMORY
from nsqc.store.clock cimport monotonic_ns
from nsqc.store.delivery cimport delivery_free, delivery_new, delivery_reserve, delivery_take
from nsqc.store.disk.queue cimport DiskQueue
from nsqc.store.fifo cimport Entry
from nsqc.store.heap cimport heap_first, heap_moved, heap_push, heap_remove, heap_reserve
from nsqc.store.inflight cimport inflight_add, inflight_find, inflight_free, inflight_remove, inflight_reserve
from nsqc.store.log.segments cimport segments_rank
from nsqc.store.log.topiclog cimport TopicLog
from nsqc.store.message cimport message_ref, message_unref
from nsqc.store.slices cimport SIZE_SHIFT, STEPS, Trash

cdef int64_t NEVER = INT64_MAX
cdef int64_t NO_OFFSET = -1
cdef int64_t NO_MEMORY_NS = 1000000000      # a delivery that cannot be ended for want of memory is extended by this

cdef enum:
    DUE_AT_ONCE = 1024          # deferred messages of a log, between two looks at the clock

cdef uint64_t sample_state = 0x2545F4914F6CDD1D


cdef inline uint32_t sample_roll() noexcept:
    """0 to 99; xorshift is random enough for sampling."""
    global sample_state
    sample_state ^= sample_state << 13
    sample_state ^= sample_state >> 7
    sample_state ^= sample_state << 17
    return <uint32_t> ((sample_state >> 11) % 100)


cdef extern from *:
    bint unlikely(bint condition)       # Cython's: keeps what is rare out of the way of what is not


cdef inline void count_time(Channel channel, int which, const Message *message) noexcept:
    """Counts how long ago a message was published."""
    cdef TwoTimes *times = channel.times
    cdef int64_t ns = channel.clock.wall - message.timestamp_ns
    if unlikely(times is NULL or times.of[which].latest != ns):
        count_other_time(channel, which, ns)
    else:
        times.of[which].run += 1


cdef void count_other_time(Channel channel, int which, int64_t ns) noexcept:
    """One that differs from that of the message before."""
    if channel.times is NULL:
        channel.times = <TwoTimes *> calloc(1, sizeof(TwoTimes))
        if channel.times is NULL:
            return
    times_add(&channel.times.of[which], ns)


cdef void relist(Channel channel, Consumer consumer) noexcept:
    """Whether it wants more has changed."""
    if consumer.listed:
        ready_remove(&channel.ready, consumer)
    elif not channel.exiting:
        ready_add(&channel.ready, consumer)


@cython.final
cdef class Channel:
    """One channel of a topic. Made by Topic.get_channel()."""

    def __init__(self, bytes name not None, bint ephemeral, DiskQueue disk, int64_t max_memory, Commit commit not None,
                 Clock clock not None, ChannelOwner owner not None, timers, LatencyWindow latency,
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
        self.alarm_ns = NEVER

    def __dealloc__(self):
        cdef Trash trash = Trash.new(None)      # freed at once, not in slices
        trash.take_heap(0, &self.timeouts)
        trash.take_heap(1, &self.delayed)
        inflight_free(&self.in_flight)
        free(self.times)

    def __str__(self):
        name = f"channel {self.name.decode()}"
        return name if self.owner is None else f"{name} of {self.owner}"

    # ------------------------------------------------------------------ from the topic

    cdef bint fits(self, uint32_t defer_ms) noexcept:
        return defer_ms != 0 or self._goes_out() or self.backlog.fits(0)

    cdef bint _goes_out(self) noexcept:
        return self.ready.c_next is not NULL and not self.halted and self._nothing_waits() and self._has_room()

    cdef int put(self, Message *message, uint32_t attempts) noexcept:
        cdef int result = 0
        if self._goes_out():
            self._deliver(message, attempts, NULL, NO_OFFSET)
        else:
            result = self.backlog.put(message, attempts, 0, False, NULL)
            if result == PUT_NO_MEMORY:
                return result
        self.message_count += 1
        return result

    cdef int put_deferred(self, Message *message, uint32_t attempts, uint32_t defer_ms) noexcept:
        if not self._has_room():
            return PUT_NO_MEMORY
        self.message_count += 1
        self._defer(message, attempts, <int64_t> defer_ms * 1000000, NULL)
        return 0

    cdef int put_copy(self, Message *message, uint32_t attempts, uint32_t defer_ms) noexcept:
        cdef int result
        if self.backlog.disk is None:
            return self.put_deferred(message, attempts, defer_ms) if defer_ms else self.put(message, attempts)
        result = self.backlog.put_copy(message, attempts, defer_ms)
        if result != PUT_NO_MEMORY:
            self.message_count += 1
        return result

    # ------------------------------------------------------------------ from consumers

    cdef int finish(self, Consumer consumer, const char *c_id) noexcept:
        cdef int result
        cdef Delivery *delivery = self._claim(consumer, c_id, &result)
        if delivery is NULL:
            return result
        self._release(delivery)
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
        return CLAIMED

    cdef int requeue(self, Consumer consumer, const char *c_id, int64_t delay_ns) noexcept:
        cdef int result
        cdef Delivery *delivery = self._claim(consumer, c_id, &result)
        if delivery is NULL:
            return result
        if delay_ns > 0 and delivery.offset >= 0:
            if self.cursor.defer(delivery.offset, delivery.attempts, self.clock.monotonic + delay_ns) < 0:
                delivery.deadline_ns = self.clock.monotonic + NO_MEMORY_NS
                heap_moved(&self.timeouts, delivery)
                return CLAIMED
            self._release(delivery)
            delivery_free(delivery)
            self._arm()
        elif delay_ns > 0 and heap_reserve(&self.delayed):
            self._release(delivery)
            delivery.owner = 0
            delivery.deadline_ns = self.clock.monotonic + delay_ns
            heap_push(&self.delayed, delivery)
            self._arm()
        elif not self._put_back(delivery, &self.timeouts):
            return CLAIMED
        consumer.in_flight -= 1
        consumer.requeue_count += 1
        self.requeue_count += 1
        self.update(consumer)
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
        if delivery is NULL:
            result[0] = NOT_IN_FLIGHT
        elif delivery.owner != consumer.id:
            result[0] = NOT_OWNER
            return NULL
        return delivery

    cdef void _release(self, Delivery *delivery) noexcept:
        """Takes it out of flight; the delivery belongs to the caller."""
        inflight_remove(&self.in_flight, delivery)
        heap_remove(&self.timeouts, delivery)

    # ------------------------------------------------------------------ delivery

    cdef bint pump(self) noexcept:
        cdef Entry entry
        cdef int steps = STEPS
        while self.ready.c_next is not NULL and not self.halted:
            if not self._has_room():
                self._try_again()
                return True
            if not self._pop(&entry):
                break
            # To send a large one takes as long as many small ones.
            steps -= 1 + <int> (entry.message.size >> SIZE_SHIFT)
            if entry.defer_ms:
                self._defer(entry.message, entry.attempts, <int64_t> entry.defer_ms * 1000000, self.place)
            else:
                self._deliver(entry.message, entry.attempts, self.place, self.offset)
            if steps <= 0:
                if self.slicer.over():
                    self.slicer.add(self)
                    return False
                steps = STEPS
        if self.cursor is not None and self.cursor.deferred.count:
            self._arm()         # it has come upon deferred messages
        return True

    cdef bint _pop(self, Entry *entry) noexcept:
        if self.cursor is None or (self.backlog.depth() > 0 and not (self.log_first and not self.cursor.is_drained())):
            self.offset = NO_OFFSET
            if not self.backlog.pop(entry):
                return False
            self.place = self.backlog.place
            return True
        if (not self.log_first and self.owner.is_behind()) or not self.cursor.pop(entry):
            return False
        self.place = NULL
        self.offset = self.cursor.offset
        return True

    cdef bint _nothing_waits(self) noexcept:
        return self.backlog.depth() == 0 and (self.cursor is None or self.cursor.is_drained())

    cdef void on_grown(self, int64_t records) noexcept:
        self.message_count += <uint64_t> records
        if self.ready.c_next is not NULL and not self.halted and not self.exiting:
            if self.slicer.over():
                self.slicer.add(self)
            else:
                self.pump()

    cdef void set_cursor(self, Cursor cursor, bint log_first) noexcept:
        self.cursor = cursor
        self.log_first = log_first

    cdef bint _has_room(self) noexcept:
        return (delivery_reserve() and inflight_reserve(&self.in_flight) and heap_reserve(&self.timeouts)
                and heap_reserve(&self.delayed))

    cdef void _deliver(self, Message *message, uint32_t attempts, Place *place, int64_t offset) noexcept:
        cdef Consumer consumer = <Consumer> self.ready.c_next
        cdef Delivery *delivery
        self.ready.c_next = consumer.c_next
        if consumer.sample_rate and sample_roll() > <uint32_t> consumer.sample_rate:
            message_unref(message)      # as with nsqd, what the sample leaves out is gone
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

    cdef bint _put_back(self, Delivery *delivery, Heap *heap) noexcept:
        """Puts a message behind those that wait. It was accepted before, so it is never dropped."""
        cdef uint16_t attempts = delivery.attempts
        cdef Place *place = delivery.place
        cdef int64_t offset = delivery.offset
        cdef bint goes_out = self._goes_out()
        if goes_out:
            if offset >= 0:
                self.cursor.came_back(offset, attempts)
        elif not self._wait_again(delivery):
            delivery.deadline_ns = self.clock.monotonic + NO_MEMORY_NS
            heap_moved(heap, delivery)
            return False
        if delivery.owner:
            inflight_remove(&self.in_flight, delivery)
        heap_remove(heap, delivery)
        if goes_out:
            self._deliver(delivery_take(delivery), attempts, place, offset)
        else:
            if self.backlog.disk is None and offset < 0:
                self.backlog.done(place)
            delivery_free(delivery)
        return True

    cdef bint _wait_again(self, Delivery *delivery) noexcept:
        """Has its message wait, in the log or in the backlog."""
        if delivery.offset >= 0:
            return self.cursor.put_back(delivery.offset, delivery.attempts) == 0
        message_ref(delivery.message)
        if self.backlog.put(delivery.message, delivery.attempts, 0, True, delivery.place) == PUT_NO_MEMORY:
            message_unref(delivery.message)
            return False
        return True

    cdef void _defer(self, Message *message, uint32_t attempts, int64_t delay_ns, Place *place) noexcept:
        """With room: holds a message for delay_ns."""
        cdef Delivery *delivery = delivery_new(message, <uint16_t> attempts)
        delivery.place = place
        delivery.deadline_ns = self.clock.monotonic + delay_ns
        heap_push(&self.delayed, delivery)
        self._arm()

    # ------------------------------------------------------------------ ready consumers

    cdef void update(self, Consumer consumer) noexcept:
        if wants_more(consumer):
            if unlikely(not consumer.listed):
                relist(self, consumer)
        elif unlikely(consumer.listed):
            relist(self, consumer)

    # ------------------------------------------------------------------ time

    cdef void _arm(self) noexcept:
        cdef int64_t first = next_deadline(self)
        if first < self.alarm_ns:
            self.alarm_ns = first
            self.timers.arm(self, first)

    def expire(self):
        """Called by the timers at the time it was armed for: puts back what has timed out or come due."""
        cdef int64_t began_ns = monotonic_ns()
        self.clock.refresh()
        self.slicer.begin(self.clock.monotonic)
        self.alarm_ns = NEVER
        if self.run_slice():
            self.slicer.add(self)
        span_over(monotonic_ns() - began_ns, b"deadlines of", self)

    cdef bint run_slice(self) noexcept:
        if self.exiting:
            return False
        self.clock.refresh()
        if not self._expire():
            if self.backlog.commit.is_full():
                self.backlog.commit.block(self)
                return False
            return True
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
                # Before the message goes back: the same consumer may get it again.
                consumer.in_flight -= 1
                self.update(consumer)
            if self._put_back(delivery, &self.timeouts):
                self.timeout_count += 1
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
            self._put_back(delivery, &self.delayed)
            steps -= 1
            if steps == 0:
                if self.slicer.over() or self.backlog.commit.is_full():
                    return False
                steps = STEPS

    def resume(self):
        """Continues deliveries that memory or the disk had interrupted."""
        self.retrying = False
        self.slicer.add(self)

    cdef void _try_again(self) noexcept:
        if not self.retrying and not self.exiting:
            self.retrying = True
            self.timers.resume_later(self)

    # ------------------------------------------------------------------ clients

    def add_client(self, Consumer consumer not None) -> bool:
        """Adds a consumer; False if the channel has as many as it may."""
        if self.max_consumers and len(self.clients) >= self.max_consumers:
            return False
        self.clients[consumer.id] = consumer
        return True

    def remove_client(self, Consumer consumer not None):
        """Removes a consumer. Messages in flight to it stay in flight until they time out."""
        ready_remove(&self.ready, consumer)
        if self.clients.pop(consumer.id, None) is None:
            return
        self.left[consumer.distance] += consumer.message_count
        if not self.clients and not self.exiting:
            self.owner.on_clients_gone(self)

    @property
    def consumers(self) -> list:
        """The consumers, in order of arrival."""
        return list(self.clients.values())

    # ------------------------------------------------------------------ administration

    cdef void set_draining(self, bint draining) noexcept:
        self.draining = draining
        self.halted = self.paused or draining
        if not self.halted and self.ready.c_next is not NULL and not self.exiting:
            self.slicer.add(self)

    def pause(self):
        """Stops deliveries."""
        self.paused = self.halted = True

    def unpause(self):
        """Starts deliveries again."""
        self.clock.refresh()
        self.slicer.begin(self.clock.monotonic)
        self.paused = False
        self.halted = self.draining
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

    def seek(self, int64_t offset):
        """Continues at an offset of the log. Of the log, nothing is in flight, requeued or deferred any more."""
        cdef Consumer consumer
        cdef Delivery *delivery
        while self.timeouts.count:
            delivery = heap_first(&self.timeouts)
            if delivery.offset < 0 and not self._wait_again(delivery):
                raise MemoryError
            self._release(delivery)
            delivery_free(delivery)
        self.cursor.reset(min(max(offset, self.cursor.log.first_offset()), self.cursor.log.next))
        for consumer in self.clients.values():
            consumer.in_flight = 0
            self.update(consumer)
        self.slicer.add(self)

    cdef void _drop_all(self) noexcept:
        """Drops what is in flight or deferred, once the backlog counts no places; the memory is freed in slices."""
        cdef Trash trash = Trash.new(self.slicer)
        if self.backlog.disk is not None:
            self.backlog.disk.drop_out()
        trash.take_heap(0, &self.timeouts)
        trash.take_heap(1, &self.delayed)
        inflight_free(&self.in_flight)
        trash.start()

    def delete(self):
        """Closes the consumers and drops everything, files included."""
        self._exit()
        self._drop_all()
        self.timers.disarm(self)
        self.backlog.delete()
        if self.cursor is not None:
            self.cursor.drop()
        self.owner = None

    def close(self) -> tuple:
        """For a stop, when no file work is under way: closes the consumers and writes everything to disk.

        Returns (memory, in flight, deferred, delays): how many messages of each kind were written, and for each
        deferred one its id and due time, in wall-clock nanoseconds. Raises OSError.
        """
        cdef Delivery *delivery
        cdef dict delays
        cdef int64_t in_flight = self.timeouts.count, deferred = self.delayed.count, waiting
        self._exit()
        if self.cursor is not None:
            in_flight -= self._record_out()
        if self.backlog.disk is None:
            return (0, 0, 0, {})
        delays = self.backlog.delays
        waiting = self.backlog.spill()
        self.clock.refresh()
        while self.timeouts.count:
            delivery = heap_first(&self.timeouts)
            self._write_back(delivery)
            self._release(delivery)
            delivery_free(delivery)
        while self.delayed.count:
            delivery = heap_first(&self.delayed)
            delays[delivery.message.id[:16]] = self.clock.wall + delivery.deadline_ns - self.clock.monotonic
            self._write_back(delivery)
            heap_remove(&self.delayed, delivery)
            delivery_free(delivery)
        self.backlog.close()
        return (waiting, in_flight, deferred, delays)

    def _record_out(self) -> int:
        """Has the journal say how often messages of the log that are in flight were delivered; how many there are."""
        cdef Delivery *delivery
        cdef int64_t index = 0, count = 0
        while index < self.timeouts.count:
            delivery = self.timeouts.items[index].delivery
            if delivery.offset < 0:
                index += 1
                continue
            if delivery.attempts > 1:
                self.cursor.came_back(delivery.offset, delivery.attempts)
            self._release(delivery)
            delivery_free(delivery)
            count += 1
            index = 0 if index else index
        self.cursor.let_go()
        return count

    cdef int _write_back(self, Delivery *delivery) except -1:
        if self.backlog.disk.append(delivery.message, delivery.attempts, delivery.place) < 0:
            raise OSError(ENOMEM, "no memory to write the channel out")
        return 0

    cdef int _exit(self) except -1:
        cdef Consumer consumer
        self.exiting = True
        for consumer in list(self.clients.values()):
            ready_remove(&self.ready, consumer)
            consumer.dismiss()
        self.clients.clear()
        return 0

    # ------------------------------------------------------------------ failed writes

    cdef void on_write_failed(self, int error, int64_t records, int64_t body_bytes) noexcept:
        """The backlog could not be written: it keeps its messages, and the topic holds back."""
        cdef bint first = not self.stuck
        self.stuck = True
        if self.owner is not None:
            self.owner.on_channel_stuck(self, error, first)
        self.slicer.add(self)       # what could not be written can still be delivered

    cdef void on_write_healed(self) noexcept:
        if self.stuck:
            self.stuck = False
            if self.owner is not None:
                self.owner.on_channel_healed(self)

    cdef void on_readable(self) noexcept:
        if self.ready.c_next is not NULL and not self.exiting:
            self.slicer.add(self)

    cdef void on_unreadable(self) noexcept:
        """Nothing is lost: it is read again later."""
        self._try_again()

    def retry(self):
        """Retries a backlog that could not be written."""
        self.backlog.retry()

    @property
    def disk(self):
        """The DiskQueue of the backlog; None: nothing goes to disk."""
        return self.backlog.disk

    # ------------------------------------------------------------------ metrics

    cdef int64_t count_waiting(self) noexcept:
        return (self.backlog.depth() - self.backlog.delayed_on_disk()
                + (self.cursor.depth() if self.cursor is not None else 0))

    cdef int64_t count_on_disk(self) noexcept:
        cdef int64_t count = self.backlog.disk_depth() - self.backlog.delayed_on_disk()
        if self.cursor is not None:
            count += max(self.cursor.depth() - self.backlog.max_memory, <int64_t> 0)
        return count

    cdef int64_t count_deferred(self) noexcept:
        return (self.delayed.count + self.backlog.delayed_on_disk()
                + (self.cursor.deferred_count() if self.cursor is not None else 0))

    cdef int64_t log_lag(self) noexcept:
        cdef TopicLog log = self.cursor.log
        return max(segments_rank(&log.segments, log.next) - segments_rank(&log.segments, self.cursor.next), <int64_t> 0)

    @property
    def depth(self) -> int:
        """Messages that wait, in memory and on disk."""
        self.clock.refresh()
        return self.count_waiting()

    @property
    def backend_depth(self) -> int:
        """Messages that wait on disk; of those in a log, as many as nsqd would not keep in memory."""
        self.clock.refresh()
        return self.count_on_disk()

    def deliveries(self) -> list:
        """How many messages were delivered to consumers at each distance."""
        cdef Consumer consumer
        cdef int distance
        counts = [self.left[distance] for distance in range(DISTANCES)]
        for consumer in self.clients.values():
            counts[consumer.distance] += consumer.message_count
        return counts

    @property
    def in_flight_count(self) -> int:
        """Messages out to consumers."""
        return self.timeouts.count

    @property
    def deferred_count(self) -> int:
        """Messages that wait for their time; those of an earlier run are still on disk."""
        self.clock.refresh()
        return self.count_deferred()

    @property
    def position(self):
        """The first offset of the log that was never delivered; None: the topic has no log."""
        return None if self.cursor is None else self.cursor.next

    @property
    def oldest(self):
        """The least offset of the log that is not finished; None: the topic has no log."""
        cdef int64_t least, index
        if self.cursor is None:
            return None
        least = self.cursor.least_waiting()
        for index in range(self.timeouts.count):
            if self.timeouts.items[index].delivery.offset >= 0:
                least = min(least, self.timeouts.items[index].delivery.offset)
        return least

    def restore_delays(self, dict delays not None):
        """Due times, in wall-clock nanoseconds, of messages that an earlier run left on disk."""
        self.backlog.delays.update(delays)


cdef int64_t next_deadline(Channel channel) noexcept:
    cdef Delivery *delivery = heap_first(&channel.timeouts)
    cdef int64_t first = NEVER if delivery is NULL else delivery.deadline_ns
    delivery = heap_first(&channel.delayed)
    if delivery is not NULL and delivery.deadline_ns < first:
        first = delivery.deadline_ns
    if channel.cursor is not None and 0 < channel.cursor.next_due() < first:
        first = channel.cursor.next_due()
    return first
