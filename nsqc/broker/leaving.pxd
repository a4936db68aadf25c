# Messages that leave a channel unfinished: expired, overflowed, dead, or as it ends; and limits of publishes.

from libc.stdint cimport int64_t, uint32_t

from nsqc.broker.channel cimport Channel, Consumer
from nsqc.broker.topic cimport OpenBatch, Topic
from nsqc.store.backlog cimport PUT_EXITING, PUT_FULL, PUT_MEMORY
from nsqc.store.memory cimport dated_ns
from nsqc.store.message cimport Delivery, Entry, Heap, Message, Place
from nsqc.store.work cimport LoopWork


# ====================================================================== origin
# The origin of a dead letter: a JSON object stored next to its body in a log-backed dead-letter topic.

cdef enum DeadReason:       # Delivery.reason: why its last delivery failed, or was not made
    DEAD_ATTEMPTS           # too many attempts before this delivery: those of an earlier run
    DEAD_REQUEUED
    DEAD_TIMED_OUT
    DEAD_DISCONNECTED
    DEAD_EXPIRED            # message_ttl
    DEAD_OVERFLOWED         # max_depth or max_bytes
    DEAD_GIVEN_UP           # by a consumer; this number and above: plus an index of Channel.given

cdef bytes origin_node(str address, int64_t node_id)     # the fields of the node
# The beginning of all origins of one batch. node: of the daemon, from origin_node().
cdef bytes origin_head(Channel channel, bytes topic, bytes node)
# Writes the origin of a dead delivery, up to MOST_ORIGIN bytes, to c_to; returns its size.
cdef uint32_t origin_store(char *c_to, Channel channel, const Delivery *delivery, bytes head) noexcept
# Remembers a consumer, for messages in flight to it that may become dead letters.
cdef void origin_client(Channel channel, object consumer, int64_t owner) noexcept


# ====================================================================== dead
# Messages of a channel that go to its dead-letter topic, or to the one that a consumer names, as functions on it. Those
# in `dead` are yet to be published there. Those in `sent` are published, and finished in the channel once that is
# acknowledged. At most one batch runs.

cdef enum LeaveReason:          # why a message is removed from a channel unfinished
    STAYS                   # it is not removed
    FAILED                  # max_attempts
    EXPIRED                 # message_ttl
    OVERFLOWED              # max_depth or max_bytes
    GIVEN_UP                # by its consumer

cdef enum:
    NO_ROOM = -2            # see give_up(); no ClaimResult

# Whether another batch fits into memory; makes room for one more delivery in `dead`.
cdef bint dead_has_room(Channel channel) noexcept
# The topic for the first message of `dead`.
cdef bytes dead_topic(Channel channel)
# A consumer gives up a message that is in flight to it: it goes to this topic, and its origin gets this reason, a name.
# ClaimResult; NO_ROOM: too many are on their way, and it stays in flight.
cdef int give_up(Channel channel, Consumer consumer, const char *c_id, bytes topic, bytes reason) except -1
# The running batch has ended: finishes its messages, or queues them to be published again.
cdef void dead_ended(Channel channel, int error) noexcept
# Forgets the running batch: its messages will be published again. False: no memory to do that for all of them.
cdef bint dead_recall(Channel channel) noexcept


# ====================================================================== dead letters
# Publishes the dead messages of a channel to its dead-letter topic.

cdef class DeadLetters(LoopWork):
    # A running batch; channel.sender, unless it was forgotten meanwhile.
    cdef Channel channel


# Begins a batch for this topic, that of the first message; none may be running, nor have failed. node: of the daemon,
# for the origins. reasons: gets a bit for each LeaveReason of its messages. PutResult: PUT_MEMORY if it has begun;
# PUT_DISK if the commit has to end before; or why the topic refused the first message.
cdef int dead_publish(Topic target, Channel channel, bytes node, int *reasons) except -1


# ====================================================================== expiry
# message_ttl of a channel, as functions on it. Queues are in publish order, so only the oldest message of each is
# checked. Expired messages in memory or in the log are removed within LOOK_NS, and those on disk once their block is
# read. Each delivery and each requeue checks again: no message is delivered late.

cdef enum:
    LOOK_NS = 250000000     # between two looks


cdef struct Taken:          # a message taken from a queue
    Message *message        # a reference
    Place *place
    int64_t offset          # in the log; below 0: not from the log
    uint32_t attempts


# With rules: why a message must not be delivered, or not again.
cdef inline LeaveReason reason_to_leave(Channel channel, const Message *message, uint32_t attempts) noexcept:
    if 0 < channel.rules.max_attempts <= attempts:
        return FAILED
    if 0 < channel.rules.message_ttl_ns <= channel.clock.wall - dated_ns(channel.clock, message.timestamp_ns):
        return EXPIRED
    return STAYS


# With rules: when to check a message that waits until due_ns, monotonic: it may expire before.
cdef inline int64_t due_or_expired(Channel channel, const Message *message, int64_t due_ns) noexcept:
    if channel.rules.message_ttl_ns == 0:
        return due_ns
    return min(due_ns, channel.clock.monotonic + dated_ns(channel.clock, message.timestamp_ns)
               + channel.rules.message_ttl_ns - channel.clock.wall)


# With rules: a message published then waits. Arm the alarm if look_ns has changed.
cdef inline void expiry_watch(Channel channel, int64_t timestamp_ns) noexcept:
    if channel.rules.message_ttl_ns:
        channel.look_ns = min(channel.look_ns, channel.clock.monotonic + max(
            dated_ns(channel.clock, timestamp_ns) + channel.rules.message_ttl_ns - channel.clock.wall,
            <int64_t> LOOK_NS))


# The next message if channel.again, which must not be empty, has it; its place and offset go to the channel.
cdef bint pop_again(Channel channel, Entry *entry) noexcept
# With rules: whether a message about to be delivered is removed instead.
cdef bint withheld(Channel channel, Entry *entry) noexcept
# With rules: moves a delivery of this heap to channel.again. False: it has to wait elsewhere, and may expire late.
cdef bint wait_to_expire(Channel channel, Delivery *delivery, Heap *heap) noexcept
# The same for a delivery in this heap, in flight or not. False: no room in `dead`; it stays.
cdef bint leave_delivery(Channel channel, Delivery *delivery, Heap *heap, LeaveReason reason) noexcept
# The wall clock has been set: deferred messages may expire at another time. False: the slice ended.
cdef bint expire_deferred(Channel channel) noexcept
# Moves messages that wait first in a queue and have used up their attempts; False: the slice ended.
cdef bint leave_exhausted(Channel channel) noexcept
# Removes expired messages, and schedules the next check; False: the slice ended.
cdef bint expire_waiting(Channel channel) noexcept


# ====================================================================== overflow
# max_depth and max_bytes of a channel, as functions on it: removes excess messages, the oldest first. `bounds`
# applies them to publishes.

# Whether more messages would exceed these limits; 0: no limit.
cdef bint exceeds(int64_t depth, int64_t waiting, int64_t count, int64_t body_bytes, int64_t max_depth,
                  int64_t max_bytes) noexcept
cdef int64_t channel_bytes(Channel channel) noexcept       # of waiting messages, about
# With rules: whether more messages certainly fit, from a cheap check: runs for each publish.
cdef inline bint surely_fits(Channel channel, int64_t count) noexcept:
    if channel.rules is NULL or channel.rules.max_bytes or channel.cursor is not None:
        return False
    count += channel.backlog.memory.count + channel.front.count + channel.again.heap.count
    if channel.backlog.disk is not None:
        count += channel.backlog.disk.depth
    return count <= channel.rules.max_depth


# With rules: whether more messages would exceed the channel's limits.
cdef bint channel_exceeds(Channel channel, int64_t count, int64_t body_bytes) noexcept
# With rules: removes the oldest excess messages; False: the slice ended.
cdef bint trim_channel(Channel channel) noexcept


# ====================================================================== bounds
# max_depth and max_bytes of a topic and its channels: decides whether messages may be published, and drops messages
# that wait in the topic itself. Messages in flight or deferred do not count; accepted messages are never refused.

# Whether these messages fit into one channel; if not, topic.bound_reason says why.
cdef bint channel_admits(Topic topic, Channel channel, int64_t count, int64_t body_bytes) noexcept
# Whether publishers have to wait while its channels move excess messages to their dead-letter topics.
cdef bint overflows(Topic topic) noexcept
# Whether all of these messages fit. tells: if not, explains it in topic.bound_reason and the following fields.
cdef bint has_room(Topic topic, int64_t count, int64_t body_bytes, bint tells) noexcept


# Whether all of these messages may be published; if not, topic.bound_reason says why. Runs for each publish if
# topic.bounded, so it uses plain pointers.
cdef inline bint admits(Topic topic, int64_t count, int64_t body_bytes) noexcept:
    cdef int at = 0
    if topic.direct or not topic.limits.refuses:
        while at < topic.limited_count and surely_fits(<Channel> topic.limited[at], count):
            at += 1
        if at == topic.limited_count:
            return True
    return has_room(topic, count, body_bytes, True)


# Whether a topic takes these messages: PUT_MEMORY, or why it does not. Its storage may still refuse them. Of publishes
# and dead letters alike.
cdef inline int admission(Topic topic, int64_t count, int64_t body_bytes) noexcept:
    if topic.exiting:
        return PUT_EXITING
    return PUT_FULL if topic.bounded and not admits(topic, count, body_bytes) else PUT_MEMORY


cdef bint admits_batch(Topic topic, OpenBatch batch) noexcept
# Sets topic.bounded and topic.limited, after a change of a rule or the channels.
cdef void set_bounded(Topic topic) noexcept
cdef int set_limits(Topic topic, object rule) except -1        # nsqc.options.rules.TopicRule

# Drops some expired messages from the topic's own backlog; returns whether there are more.
cdef bint topic_expire(Topic topic) noexcept
# A message was added to the topic's own backlog, which has limits.
cdef void topic_waits(Topic topic) noexcept


# ====================================================================== end
# The end of a channel: its deletion, or the daemon's stop.

# Closes the consumers and drops everything, files included.
cdef int delete_channel(Channel channel) except -1
# For a stop, with no file work in progress: closes the consumers and writes everything to disk. Returns (memory, in
# flight, deferred, delays): how many messages of each kind were written, and each deferred one's id and due time, in
# wall-clock nanoseconds. Raises OSError.
cdef tuple close_channel(Channel channel)
