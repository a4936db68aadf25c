"""Messages that leave a channel unfinished, because they expire or as it ends; limits of publishes. See the .pxd."""

cimport cython
import msgspec
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.errno cimport ENOMEM
from libc.stdint cimport INT64_MAX, int64_t, uint16_t, uint32_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from nsqc.broker.rules cimport (OVERFLOW_DIE, OVERFLOW_DROP, RETURNED, AgainSlot, ChannelRules, again_add,
                                again_drop_logged, again_first, again_forget, again_remove, again_reserve,
                                overflow_of)
from nsqc.broker.channel cimport CLAIMED, Channel, Consumer, ready_remove, take_out, unlikely
from nsqc.broker.storage cimport flow_refresh
from nsqc.broker.topic cimport OpenBatch, Topic
from nsqc.store.backlog cimport PUT_DISK, PUT_MEMORY, PUT_NO_MEMORY, is_refused
from nsqc.store.log.cursor cimport Cursor
from nsqc.store.log.frame cimport MOST_ORIGIN
from nsqc.store.log.segment cimport FRAMES_AT, Segment, segments_find
from nsqc.store.memory cimport dated_ns
from nsqc.store.message cimport (Delivery, Entry, Heap, delivery_free, delivery_new, delivery_reserve, delivery_take,
                                 heap_drop_logged, heap_first, heap_moved, heap_push, heap_remove, heap_reserve,
                                 inflight_free, inflight_remove, message_unref)
from nsqc.store.work cimport SIZE_SHIFT, STEPS, LoopWork


# ====================================================================== origin

cdef enum:
    MOST_CLIENTS = 1024         # remembered per channel
    MOST_CHARS = 96             # of a text chosen by clients or operators
    TAIL_BYTES = 224            # most bytes of an origin without its head and its client

cdef bytes NOBODY = b"null"


cdef bytes origin_node(str address, int64_t node_id):
    return b'"node":%s,"node_id":%d' % (_text(address), node_id)


def _text(str text not None):
    """A text as JSON, shortened if necessary."""
    return msgspec.json.encode(text[:MOST_CHARS].encode("utf-8", "replace").decode())


cdef bytes origin_head(Channel channel, bytes topic, bytes node):
    return b'{"topic":"%s","channel":"%s",%s' % (topic, channel.name, node)


cdef uint32_t origin_store(char *c_to, Channel channel, const Delivery *delivery, bytes head) noexcept:
    cdef bytes client = NOBODY
    cdef int64_t length = PyBytes_GET_SIZE(head)
    if channel.last_clients is not None and delivery.reason != DEAD_ATTEMPTS:
        client = channel.last_clients.get(delivery.delivered_ns, NOBODY)
    if length + PyBytes_GET_SIZE(client) + TAIL_BYTES > MOST_ORIGIN:
        client = NOBODY
    memcpy(c_to, PyBytes_AS_STRING(head), <size_t> length)
    return <uint32_t> (length + snprintf(
        c_to + length, <size_t> (MOST_ORIGIN - length),
        b",\"id\":\"%.16s\",\"timestamp\":%lld,\"attempts\":%u,\"reason\":\"%s\",\"client\":%s}",
        delivery.message.id, <long long> delivery.message.timestamp_ns, <unsigned> delivery.attempts,
        reason_text(channel, delivery.reason), PyBytes_AS_STRING(client)))


cdef const char *reason_text(Channel channel, int reason) noexcept:
    if reason >= DEAD_GIVEN_UP:
        return PyBytes_AS_STRING((<tuple> channel.given[reason - DEAD_GIVEN_UP])[1])
    if reason == DEAD_REQUEUED:
        return b"requeued"
    if reason == DEAD_TIMED_OUT:
        return b"timed_out"
    if reason == DEAD_EXPIRED or reason == DEAD_OVERFLOWED:
        return b"expired" if reason == DEAD_EXPIRED else b"overflow"
    return b"disconnected" if reason == DEAD_DISCONNECTED else b"attempts"


cdef void origin_client(Channel channel, object consumer, int64_t owner) noexcept:
    try:
        if channel.last_clients is None or len(channel.last_clients) >= MOST_CLIENTS:
            channel.last_clients = {}
        if owner not in channel.last_clients:
            stats = (<Consumer?> consumer).stats()
            channel.last_clients[owner] = b'{"client_id":%s,"hostname":%s,"remote_address":%s}' % (
                _text(stats.client_id), _text(stats.hostname), _text(stats.remote_address))
    except Exception:
        return      # no memory: the origins of its messages lack the client


# ====================================================================== dead

cdef enum:
    MOST_DEAD = 4096        # in memory on their way, beyond those that were in flight
    MOST_GIVEN = 1024       # topics and reasons of consumers, while letters are on their way


cdef bint dead_has_room(Channel channel) noexcept:
    return channel.dead.count + channel.sent.count < MOST_DEAD and heap_reserve(&channel.dead)


cdef void dead_add(Channel channel, Message *message, uint32_t attempts, Place *place, int64_t offset,
                   LeaveReason reason) noexcept:
    """Takes a message that was about to be delivered; needs room for a delivery, and in `dead`. Takes reference and
    place."""
    cdef Delivery *delivery = delivery_new(message, <uint16_t> attempts)
    delivery.place = place
    delivery.offset = offset
    delivery.owner = 0
    delivery.reason = DEAD_ATTEMPTS
    dead_take(channel, delivery, reason)


cdef void dead_take(Channel channel, Delivery *delivery, LeaveReason reason) noexcept:
    """Takes a delivery that is in no heap, with room in `dead`. FAILED: Delivery.reason has the details."""
    if reason != FAILED:
        delivery.reason = DEAD_EXPIRED if reason == EXPIRED else DEAD_OVERFLOWED
    if delivery.owner != RETURNED:      # otherwise it already has its consumer's id
        delivery.delivered_ns = delivery.owner
        if delivery.owner in channel.clients:
            origin_client(channel, channel.clients[delivery.owner], delivery.owner)
    delivery.owner = 0
    if channel.dead.count + channel.sent.count == 0:
        channel.dead_serial = 0
    # The oldest goes first; within a batch, the first.
    delivery.deadline_ns = delivery.message.timestamp_ns + channel.dead_serial
    channel.dead_serial += 1
    heap_push(&channel.dead, delivery)
    if delivery.offset >= 0:
        # Its attempts are known after a kill, so it comes here again rather than to a consumer.
        channel.cursor.came_back(delivery.offset, delivery.attempts)
    channel.slicer.add(channel)


cdef bytes dead_topic(Channel channel):
    cdef Delivery *delivery = heap_first(&channel.dead)
    if delivery is NULL or delivery.reason < DEAD_GIVEN_UP:
        return channel.dead_letter
    return (<tuple> channel.given[delivery.reason - DEAD_GIVEN_UP])[0]


cdef int give_up(Channel channel, Consumer consumer, const char *c_id, bytes topic, bytes reason) except -1:
    cdef tuple given = (topic, reason)
    cdef Delivery *delivery
    cdef int result
    if channel.given is None or channel.dead.count + channel.sent.count == 0:
        channel.given = []
    if given not in channel.given:
        if len(channel.given) == MOST_GIVEN:
            return NO_ROOM
        channel.given.append(given)
    if not dead_has_room(channel):
        return NO_ROOM
    delivery = channel._claim(consumer, c_id, &result)
    if delivery is NULL:
        return result
    delivery.reason = <uint16_t> (DEAD_GIVEN_UP + <int> channel.given.index(given))
    take_out(channel, delivery)
    consumer.in_flight -= 1
    consumer.finish_count += 1
    dead_take(channel, delivery, FAILED)
    channel.update(consumer)
    if channel.throttled:
        channel._throttle()
    return CLAIMED


cdef void dead_ended(Channel channel, int error) noexcept:
    cdef Delivery *delivery
    if error:
        dead_recall(channel)
        return
    channel.sender = None
    channel.dead_waits = False
    while channel.sent.count:
        delivery = heap_first(&channel.sent)
        heap_remove(&channel.sent, delivery)
        if delivery.offset >= 0:
            channel.cursor.done(delivery.offset)
        else:
            channel.backlog.done(delivery.place)
        delivery_free(delivery)
        channel.counts.dead_letter_count += 1
    channel.slicer.add(channel)     # for more of them, or for messages that waited for room
    channel.owner.on_moved()


cdef bint dead_recall(Channel channel) noexcept:
    cdef Delivery *delivery
    channel.sender = None
    while channel.sent.count:
        if not heap_reserve(&channel.dead):
            return False
        delivery = heap_first(&channel.sent)
        heap_remove(&channel.sent, delivery)
        heap_push(&channel.dead, delivery)
    return True


# ====================================================================== dead letters

cdef enum:
    MOST_SENT = 1024    # messages of a batch, or an equal amount of work


@cython.final
cdef class DeadLetters(LoopWork):
    """Waits for the commit of a batch."""

    cdef void commit_ended(self, LoopWork commit, int error) noexcept:
        cdef Channel channel = self.channel
        if channel.sender is not self:
            return
        dead_ended(channel, error)
        if channel.throttled:
            channel._throttle()
        if error:
            channel.owner.owner.on_dead(channel, error)


cdef int put_letter(Topic target, Channel channel, Delivery *delivery, bytes head, int64_t more_bytes) noexcept:
    """PutResult. Disk queue files cannot store an origin, and a memory queue may be written to a file."""
    cdef char c_origin[MOST_ORIGIN]
    cdef Message *message = delivery.message
    if not target.logs:
        return target.publish_dead(message.body, message.size, NULL, 0, 0, 0)
    # A log counts its messages when they are written.
    return target.publish_dead(message.body, message.size, c_origin, origin_store(c_origin, channel, delivery, head),
                               channel.sent.count, more_bytes)


cdef inline LeaveReason reason_of(const Delivery *delivery) noexcept:
    if delivery.reason == DEAD_EXPIRED:
        return EXPIRED
    if delivery.reason >= DEAD_GIVEN_UP:
        return GIVEN_UP
    return OVERFLOWED if delivery.reason == DEAD_OVERFLOWED else FAILED


cdef int dead_publish(Topic target, Channel channel, bytes node, int *reasons) except -1:
    cdef DeadLetters batch
    cdef Delivery *delivery
    cdef bint waits = False
    cdef int result = PUT_DISK
    cdef int64_t left = MOST_SENT, sent_bytes = 0
    cdef bytes head = origin_head(channel, channel.owner.name, node)
    while (channel.dead.count and left > 0 and not target.commit.is_full() and dead_topic(channel) == target.name):
        delivery = heap_first(&channel.dead)
        result = PUT_NO_MEMORY
        if heap_reserve(&channel.sent):
            result = put_letter(target, channel, delivery, head, sent_bytes)
        if is_refused(result):
            break
        waits |= result == PUT_DISK
        reasons[0] |= 1 << reason_of(delivery)
        heap_remove(&channel.dead, delivery)
        heap_push(&channel.sent, delivery)
        sent_bytes += delivery.message.size
        left -= 1 + <int64_t> (delivery.message.size >> SIZE_SHIFT)
    if channel.sent.count == 0:
        return result
    batch = DeadLetters.__new__(DeadLetters)
    batch.channel = channel
    channel.sender = batch
    if waits:
        target.commit.wait(batch)
    else:
        batch.commit_ended(target.commit, 0)
    return PUT_MEMORY


# ====================================================================== expiry

cdef int64_t NEVER = INT64_MAX


cdef inline bint dies(Channel channel, LeaveReason reason) noexcept:
    if reason == EXPIRED:
        return channel.rules.expired_die
    return reason == FAILED or channel.rules.overflow == OVERFLOW_DIE


cdef void count_left(Channel channel, LeaveReason reason) noexcept:
    if reason == EXPIRED:
        channel.counts.expired_count += 1
    elif reason != FAILED:
        channel.counts.overflow_count += 1


cdef void leave_taken(Channel channel, Taken *taken, LeaveReason reason) noexcept:
    """With rules: removes a message that was about to be delivered. With room for a delivery, and in `dead`. Takes the
    reference and the place."""
    count_left(channel, reason)
    if dies(channel, reason):
        dead_add(channel, taken.message, taken.attempts, taken.place, taken.offset, reason)
        return
    message_unref(taken.message)
    if taken.offset >= 0:
        channel.cursor.done(taken.offset)
    else:
        channel.backlog.done(taken.place)


cdef bint leave_delivery(Channel channel, Delivery *delivery, Heap *heap, LeaveReason reason) noexcept:
    cdef bint moves = dies(channel, reason)
    if moves and not heap_reserve(&channel.dead):
        return False
    if delivery.owner:
        inflight_remove(&channel.in_flight, delivery)
    if heap is &channel.again.heap:
        again_remove(&channel.again, delivery)
    else:
        heap_remove(heap, delivery)
    count_left(channel, reason)
    if moves:
        dead_take(channel, delivery, reason)
        return True
    if delivery.offset >= 0:
        channel.cursor.done(delivery.offset)
    else:
        channel.backlog.done(delivery.place)
    delivery_free(delivery)
    return True


cdef bint pop_again(Channel channel, Entry *entry) noexcept:
    cdef AgainSlot *slot = again_first(&channel.again)
    cdef Delivery *delivery = slot.delivery
    if slot.after > channel.taken and not (channel.backlog.depth() == 0
                                           and (channel.cursor is None or channel.cursor.is_drained())):
        return False
    again_remove(&channel.again, delivery)
    channel.place, channel.offset = delivery.place, delivery.offset
    entry.attempts = delivery.attempts
    entry.defer_ms = 0
    entry.message = delivery_take(delivery)
    return True


cdef inline void took(Channel channel) noexcept:
    """A message has left the queues."""
    channel.taken += 1
    if unlikely(channel.owner.crowded):
        channel.owner.on_room()


cdef bint withheld(Channel channel, Entry *entry) noexcept:
    cdef Taken taken
    cdef LeaveReason reason = reason_to_leave(channel, entry.message, entry.attempts)
    took(channel)
    if reason == STAYS:
        return False
    taken.message, taken.attempts = entry.message, entry.attempts
    taken.place, taken.offset = channel.place, channel.offset
    leave_taken(channel, &taken, reason)
    return True


cdef bint wait_to_expire(Channel channel, Delivery *delivery, Heap *heap) noexcept:
    if (channel.rules.message_ttl_ns == 0 or channel.again.heap.count >= channel.backlog.max_memory
            or not again_reserve(&channel.again)):
        return False
    if delivery.owner:
        inflight_remove(&channel.in_flight, delivery)
    heap_remove(heap, delivery)
    if delivery.offset >= 0:
        channel.cursor.came_back(delivery.offset, delivery.attempts)
    again_add(&channel.again, delivery, channel.taken + channel.count_waiting())
    return True


cdef bint take_oldest(Channel channel, int64_t before_ns, Taken *taken, int64_t *oldest_ns) noexcept:
    """Takes the oldest message of a queue, if it was published no later than before_ns. False: none now; then oldest_ns
    is the publish time of the oldest one if known, or NEVER."""
    cdef Delivery *delivery = heap_first(&channel.again.heap)
    cdef Entry entry
    cdef int64_t waits_ns
    cdef uint32_t attempts = 0
    oldest_ns[0] = NEVER
    if delivery is not NULL:
        oldest_ns[0] = dated_ns(channel.clock, delivery.message.timestamp_ns)
        if oldest_ns[0] <= before_ns:
            again_remove(&channel.again, delivery)
            taken.place, taken.offset, taken.attempts = delivery.place, delivery.offset, delivery.attempts
            taken.message = delivery_take(delivery)
            return True
    waits_ns = dated_ns(channel.clock, channel.backlog.oldest_ns(&attempts))
    if 0 < waits_ns <= before_ns and channel.backlog.pop(&entry):
        taken.place = channel.backlog.place
        taken.offset = -1
    else:
        if waits_ns > 0:
            oldest_ns[0] = min(oldest_ns[0], waits_ns)
        if channel.cursor is None:
            return False
        if not channel.cursor.pop_before(&entry, before_ns, &waits_ns):
            oldest_ns[0] = min(oldest_ns[0], waits_ns)
            return False
        taken.place = NULL
        taken.offset = channel.cursor.offset
    taken.message = entry.message
    taken.attempts = entry.attempts
    took(channel)
    return True


cdef bint expire_deferred(Channel channel) noexcept:
    cdef Delivery *delivery
    cdef int64_t due_ns
    cdef int steps = STEPS
    # Backwards; an item that moves is replaced by one that was not checked, so that place is checked again.
    while channel.undated:
        channel.undated = min(channel.undated, channel.delayed.count)
        if channel.undated == 0:
            break
        if steps == 0:
            if channel.slicer.over():
                return False
            steps = STEPS
        steps -= 1
        delivery = channel.delayed.items[channel.undated - 1].delivery
        due_ns = due_or_expired(channel, delivery.message, delivery.delivered_ns)
        if due_ns == delivery.deadline_ns:
            channel.undated -= 1
            continue
        delivery.deadline_ns = due_ns
        heap_moved(&channel.delayed, delivery)
    return True


cdef bint leave_exhausted(Channel channel) noexcept:
    cdef uint32_t most = channel.rules.max_attempts, attempts
    cdef int steps = STEPS
    cdef Entry entry
    cdef Taken taken
    if most == 0:
        return True
    if not channel.sorted and channel.cursor is not None and not channel.rules.ordered:
        channel.cursor.exhausted_first(most)
        channel.sorted = True
    while delivery_reserve() and dead_has_room(channel):        # else dead_ended() follows
        attempts = 0
        if channel.backlog.oldest_ns(&attempts) > 0 and attempts >= most and channel.backlog.pop(&entry):
            taken.place = channel.backlog.place
            taken.offset = -1
        elif channel.cursor is not None and channel.cursor.pop_exhausted(&entry, most):
            taken.place = NULL
            taken.offset = channel.cursor.offset
        else:
            return True
        taken.message = entry.message
        taken.attempts = entry.attempts
        took(channel)
        leave_taken(channel, &taken, FAILED)
        steps -= 1
        if steps == 0:
            if channel.slicer.over():
                return False
            steps = STEPS
    return True


cdef bint expire_waiting(Channel channel) noexcept:
    cdef int64_t before_ns, oldest_ns, front_ns
    cdef int steps = STEPS
    cdef Taken taken
    channel.look_ns = NEVER
    if channel.rules is NULL or channel.rules.message_ttl_ns == 0:
        return True
    before_ns = channel.clock.wall - channel.rules.message_ttl_ns
    front_ns = expire_front(channel, before_ns)
    while True:
        if channel.rules.expired_die and not (delivery_reserve() and dead_has_room(channel)):
            # Either there is no memory, or dead letters must be published first: then dead_ended() follows.
            channel.look_ns = channel.clock.monotonic + LOOK_NS
            return True
        if not take_oldest(channel, before_ns, &taken, &oldest_ns):
            break
        leave_taken(channel, &taken, EXPIRED)
        steps -= 1
        if steps == 0:
            if channel.slicer.over():
                return False
            steps = STEPS
    oldest_ns = min(oldest_ns, front_ns)
    if oldest_ns != NEVER:
        channel.look_ns = channel.clock.monotonic + max(oldest_ns - before_ns, <int64_t> LOOK_NS)
    return True


cdef int64_t expire_front(Channel channel, int64_t before_ns) noexcept:
    """For an ordered channel, which has few there. Returns the publish time of the oldest remaining one, or NEVER."""
    cdef Delivery *delivery
    cdef int64_t oldest_ns = NEVER
    cdef uint32_t at = channel.front.count
    # Backwards: the item that takes a removed one's place is either already checked or next.
    while at > 0:
        at = min(at, channel.front.count)
        if at == 0:
            break
        delivery = channel.front.items[at - 1].delivery
        if (dated_ns(channel.clock, delivery.message.timestamp_ns) <= before_ns
                and leave_delivery(channel, delivery, &channel.front, EXPIRED)):
            continue
        oldest_ns = min(oldest_ns, dated_ns(channel.clock, delivery.message.timestamp_ns))
        at -= 1
    return oldest_ns


# ====================================================================== overflow

cdef bint exceeds(int64_t depth, int64_t waiting, int64_t count, int64_t body_bytes, int64_t max_depth,
                  int64_t max_bytes) noexcept:
    return 0 < max_depth < depth + count or 0 < max_bytes < waiting + body_bytes


cdef int64_t cursor_bytes(Cursor cursor) noexcept:
    """Bytes of the undelivered records; the first segment counts by its share of undelivered ones."""
    cdef int64_t index = segments_find(&cursor.log.segments, cursor.next), size
    cdef Segment *segment
    if index < 0 or cursor.next >= cursor.log.visible:
        return 0
    segment = &cursor.log.segments.items[index]
    size = (segment.position - FRAMES_AT) * (segment.end - min(cursor.next, segment.end)) // max(
        segment.end - segment.first, 1)
    for index in range(index + 1, cursor.log.segments.count):
        size += cursor.log.segments.items[index].position - FRAMES_AT
    return size


cdef int64_t channel_bytes(Channel channel) noexcept:
    return channel.backlog.bytes() + (cursor_bytes(channel.cursor) if channel.cursor is not None else 0)


cdef bint channel_exceeds(Channel channel, int64_t count, int64_t body_bytes) noexcept:
    cdef ChannelRules *rules = channel.rules
    return exceeds(channel.count_waiting() if rules.max_depth else 0, channel_bytes(channel) if rules.max_bytes else 0,
                   count, body_bytes, rules.max_depth, rules.max_bytes)


cdef bint trim_channel(Channel channel) noexcept:
    cdef int64_t oldest_ns
    cdef int steps = STEPS
    cdef Taken taken
    if not channel.rules.trims:
        return True
    if channel.cursor is not None and channel.cursor.log.delays.count:
        # Deferred messages that no consumer has reached become due without any event.
        channel.look_ns = min(channel.look_ns, channel.clock.monotonic + LOOK_NS)
    while channel_exceeds(channel, 0, 0):
        if channel.rules.overflow == OVERFLOW_DIE and not (delivery_reserve() and dead_has_room(channel)):
            return True         # until dead letters are published
        if not take_oldest(channel, INT64_MAX, &taken, &oldest_ns):
            return True         # until the block is read
        leave_taken(channel, &taken, OVERFLOWED)
        steps -= 1
        if steps == 0:
            if channel.slicer.over():
                return False
            steps = STEPS
    return True


# ====================================================================== bounds

cdef enum:
    EXPIRED_AT_ONCE = 4096          # expired messages of a topic, between two looks at the clock


# ---------------------------------------------------------------------- depth


cdef bint topic_exceeds(Topic topic, int64_t count, int64_t body_bytes) noexcept:
    return exceeds(topic.count_waiting(), topic.backlog.bytes(), count, body_bytes, topic.limits.max_depth,
                   topic.limits.max_bytes)


# ---------------------------------------------------------------------- publishing


cdef bint has_room(Topic topic, int64_t count, int64_t body_bytes, bint tells) noexcept:
    cdef Channel channel
    if topic.limits.refuses and not topic.direct and topic_exceeds(topic, count, body_bytes):
        if tells:
            tell(topic, None, topic.count_waiting(), topic.backlog.bytes(), count, body_bytes)
        return False
    for channel in topic.fan:
        if not channel_has_room(channel, count, body_bytes):
            if tells:
                tell(topic, channel, channel.count_waiting(), channel_bytes(channel), count, body_bytes)
            return False
    return True


cdef bint channel_admits(Topic topic, Channel channel, int64_t count, int64_t body_bytes) noexcept:
    if channel_has_room(channel, count, body_bytes):
        return True
    tell(topic, channel, channel.count_waiting(), channel_bytes(channel), count, body_bytes)
    return False


cdef inline bint channel_has_room(Channel channel, int64_t count, int64_t body_bytes) noexcept:
    if not refuses(channel) or surely_fits(channel, count) or not channel_exceeds(channel, count, body_bytes):
        return True
    # While the dead-letter topic accepts messages, there will be room: overflows() has publishers wait for it.
    return channel.rules.overflow == OVERFLOW_DIE and not (channel.dead_waits and not dead_has_room(channel))


cdef bint overflows(Topic topic) noexcept:
    cdef Channel channel
    cdef int at
    for at in range(topic.limited_count):
        channel = <Channel> topic.limited[at]
        if (channel.rules.overflow == OVERFLOW_DIE and channel.dead.count + channel.sent.count > 0
                and not channel.dead_waits and not surely_fits(channel, 0) and not dead_has_room(channel)
                and channel_exceeds(channel, 0, 0)):
            return True
    return False


cdef inline bint refuses(Channel channel) noexcept:
    """Whether its limits may refuse publishes."""
    return (channel.rules is not NULL and channel.rules.overflow != OVERFLOW_DROP
            and (channel.rules.max_depth > 0 or channel.rules.max_bytes > 0))


cdef int tell(Topic topic, Channel channel, int64_t depth, int64_t waiting, int64_t count,
              int64_t body_bytes) except -1:
    """Records why a publish is refused: the rule, its value, and its origin."""
    cdef object what, source = topic.rule_source
    cdef int64_t max_depth = topic.limits.max_depth, max_bytes = topic.limits.max_bytes
    if channel is None:
        what = f"topic {topic.name.decode()}"
    else:
        what = f"channel {channel.name.decode()}"
        source = channel.rule.source
        max_depth = channel.rules.max_depth
        max_bytes = channel.rules.max_bytes
    topic.bound_count, topic.bound_bytes = count, body_bytes
    topic.bound_lasts = exceeds(0, 0, count, body_bytes, max_depth, max_bytes)
    if 0 < max_depth < depth + count:
        text = f"{what} has {depth} messages, its max_depth is {max_depth} ({source})"
    else:
        text = f"{what} has {waiting} bytes, its max_bytes is {max_bytes} ({source})"
    if channel is not None and channel.rules.overflow == OVERFLOW_DIE:
        text = f"{text}, and its dead-letter topic {channel.dead_letter.decode()} accepts nothing"
    elif count != 1:
        text = f"{text}: a batch of {count} messages does not fit"
    topic.bound_reason = text
    return 0


cdef bint admits_batch(Topic topic, OpenBatch batch) noexcept:
    cdef int64_t count, body_bytes
    batch.measure(&count, &body_bytes)
    return admits(topic, count, body_bytes)


# ---------------------------------------------------------------------- rules


cdef void set_bounded(Topic topic) noexcept:
    cdef Channel channel
    cdef list limited = [channel for channel in topic.fan if refuses(channel)]
    topic.bounded = topic.limits.refuses or len(limited) > 0
    topic.limited_count = 0
    free(topic.limited)
    topic.limited = <PyObject **> malloc(len(limited) * sizeof(PyObject *)) if limited else NULL
    if limited and topic.limited is NULL:
        topic.limited_count = -1        # no memory: has_room() checks each publish
        return
    for channel in limited:
        topic.limited[topic.limited_count] = <PyObject *> channel
        topic.limited_count += 1


cdef int set_limits(Topic topic, object rule) except -1:
    cdef bint limited
    topic.rule_source = rule.source
    topic.limits.max_depth = rule.max_depth
    topic.limits.max_bytes = rule.max_bytes
    # Channels create dead letters: a message that should become one waits here for a channel, or is refused.
    topic.limits.message_ttl_ns = rule.message_ttl if rule.expired == "drop" else 0
    limited = topic.limits.max_depth > 0 or topic.limits.max_bytes > 0
    topic.limits.trims = limited and overflow_of(rule, True) == OVERFLOW_DROP
    topic.limits.refuses = limited and not topic.limits.trims
    topic.limits.watched = topic.limits.trims or topic.limits.message_ttl_ns > 0
    set_bounded(topic)
    if topic.limits.watched and topic.backlog.depth() > 0:
        topic_waits(topic)
    return 0


# ---------------------------------------------------------------------- drops of excess and expired messages


cdef void topic_waits(Topic topic) noexcept:
    cdef int steps = STEPS
    while steps and topic.limits.trims and topic_exceeds(topic, 0, 0) and drop_oldest(topic):
        topic.overflow_count += 1
        steps -= 1
    if not topic.aging:
        topic.aging = True
        topic.owner.on_aging(topic)


cdef bint topic_expire(Topic topic) noexcept:
    cdef int left = EXPIRED_AT_ONCE
    cdef int64_t oldest_ns
    cdef uint32_t attempts = 0
    topic.aging = False
    if topic.exiting or not topic.limits.watched or topic.direct:
        return False
    topic.clock.refresh()
    while left and topic.limits.trims and topic_exceeds(topic, 0, 0) and drop_oldest(topic):
        topic.overflow_count += 1
        left -= 1
    while left and topic.limits.message_ttl_ns:
        oldest_ns = dated_ns(topic.clock, topic.backlog.oldest_ns(&attempts))
        if not 0 < oldest_ns <= topic.clock.wall - topic.limits.message_ttl_ns or not drop_oldest(topic):
            break
        topic.expired_count += 1
        left -= 1
    topic.aging = topic.backlog.depth() > 0
    if not topic.aging:
        flow_refresh(topic)
    return left == 0


cdef bint drop_oldest(Topic topic) noexcept:
    cdef Entry entry
    if not topic.backlog.pop(&entry):
        return False
    message_unref(entry.message)
    topic.backlog.done(topic.backlog.place)
    return True


# ====================================================================== end

cdef int delete_channel(Channel channel) except -1:
    dismiss_clients(channel)
    channel._drop_all()
    channel.timers.disarm(channel)
    channel.backlog.delete()
    if channel.cursor is not None:
        channel.cursor.drop()
    channel.owner = None
    return 0


cdef tuple close_channel(Channel channel):
    cdef Delivery *delivery
    cdef uint32_t index
    cdef dict delays
    cdef int64_t in_flight = channel.timeouts.count, deferred = channel.delayed.count, waiting
    dismiss_clients(channel)
    if not dead_recall(channel):
        raise OSError(ENOMEM, "no memory to write the channel out")
    if channel.cursor is not None:
        heap_drop_logged(&channel.dead)      # the journal has their attempts
        heap_drop_logged(&channel.front)
        again_drop_logged(&channel.again)
        in_flight -= record_out(channel)
    deferred += channel.dead.count + channel.front.count        # before they are written
    waiting = channel.again.heap.count
    if channel.backlog.disk is None:
        return (0, 0, 0, {})
    delays = channel.backlog.delays
    # Before those in memory: if no others are on disk, the next run finds them first.
    write_back(channel, &channel.dead)
    waiting += channel.backlog.spill()
    channel.clock.refresh()
    inflight_free(&channel.in_flight)
    write_back(channel, &channel.timeouts)
    for index in range(channel.delayed.count):
        delivery = channel.delayed.items[index].delivery
        delays[delivery.message.id[:16]] = channel.clock.wall + delivery.delivered_ns - channel.clock.monotonic
    write_back(channel, &channel.delayed)
    write_back(channel, &channel.again.heap)
    again_forget(&channel.again)
    write_back(channel, &channel.front)
    channel.backlog.close()
    return (waiting, in_flight, deferred, delays)


cdef int64_t record_out(Channel channel) except -1:
    """Writes the attempts of the log's messages in flight to the journal; returns how many there are."""
    cdef Delivery *delivery
    cdef int64_t index = 0, count = 0
    while index < channel.timeouts.count:
        delivery = channel.timeouts.items[index].delivery
        if delivery.offset < 0:
            index += 1
            continue
        if delivery.attempts > 1:
            channel.cursor.came_back(delivery.offset, delivery.attempts)
        take_out(channel, delivery)
        delivery_free(delivery)
        count += 1
        index = 0 if index else index
    channel.cursor.release_owner()
    return count


cdef int write_back(Channel channel, Heap *heap) except -1:
    cdef Delivery *delivery
    while heap.count:
        delivery = heap_first(heap)
        if channel.backlog.disk.append(delivery.message, delivery.attempts, delivery.place) < 0:
            raise OSError(ENOMEM, "no memory to write the channel out")
        heap_remove(heap, delivery)
        delivery_free(delivery)
    return 0


cdef int dismiss_clients(Channel channel) except -1:
    cdef Consumer consumer
    channel.exiting = True
    for consumer in list(channel.clients.values()):
        ready_remove(&channel.ready, consumer)
        consumer.dismiss()
    channel.clients.clear()
    return 0
