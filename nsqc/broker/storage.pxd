# Where a topic keeps messages: memory and disk queue, or a log; and the flow to its channels.

from libc.stdint cimport int64_t

from nsqc.broker.channel cimport Channel
from nsqc.broker.leaving cimport surely_fits
from nsqc.broker.topic cimport Once, OpenBatch, Storage, Topic
from nsqc.store.backlog cimport PUT_DISK, PUT_EXITING, PUT_FULL, PUT_MEMORY
from nsqc.store.log.cursor cimport Earlier
from nsqc.store.log.topiclog cimport TopicLog


# ====================================================================== flow
# The flow of a topic's messages from its backlog to the channels.
#
# topic.direct holds exactly while the topic is started, not paused, has a channel, has no stuck channel, and has an
# empty backlog. Then publishes go straight to the channels.
#
# Otherwise it catches up in slices, unless the flow is blocked. Messages in memory go to the channels like new
# publishes. Messages on disk are copied to the channels' disks, and their places here are done when a commit has
# written all copies. Meanwhile publishers are held: a topic accepts half as many messages as it has passed on.

cdef inline bint flows(Topic topic) noexcept:
    return (topic.started and not topic.paused and not topic.exiting and topic.stuck == 0 and topic.fan_count > 0)

cdef void flow_refresh(Topic topic) noexcept           # after a change of anything that direct depends on
cdef void flow_slice(Topic topic) noexcept             # passes on waiting messages until the slice is over
cdef int flow_begin(Topic topic) except -1             # passes on at once those that fit into a slice
cdef void flow_readable(Topic topic) noexcept          # the backlog is readable
cdef void flow_unreadable(Topic topic) noexcept        # it is not now: the read is retried later
cdef void flow_let_publish(Topic topic, int64_t allowance) noexcept    # held publishers continue
cdef void flow_commit_began(Topic topic) noexcept
cdef void flow_commit_ended(Topic topic, int error) noexcept
cdef void flow_copies_done(Topic topic) noexcept       # if no channel is stuck: all copies are written
cdef void flow_drop_leftover(Topic topic) noexcept


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


# ====================================================================== publishes with an id
# Publishes with an id, to a topic that remembers ids: stored once, even if repeated. See nsqc/store/publishids.pxd.

cdef enum:
    GO = -1             # of once_begins(): publish, then once_ended()

# Whether the topic remembers ids; if so, sets the id of a publish.
cdef bint once_new(Topic topic, Once *once, const char *c_id, Py_ssize_t length) noexcept
# Claims the id: GO, or the PutResult of the publish. With PUT_TAKEN, ask again later.
cdef int once_begins(Topic topic, Once *once) noexcept
# Some of its messages were published, with this PutResult.
cdef inline void once_wrote(Once *once, int result) noexcept:
    once.wrote |= result == PUT_DISK
# All of them were published, or the last one was refused.
cdef void once_ended(Topic topic, Once *once, int result) noexcept
# An error prevented the publish.
cdef void once_dropped(Topic topic, Once *once) noexcept
# Applies the topic's rule: how long ids are remembered, and how many; 0: none. opened: the
# nsqc.store.log.recovery.Opened of its log, if just opened.
cdef int follow_dedupe(Topic topic, int64_t window_ns, int64_t limit, object opened) except -1


# ====================================================================== settled
# Redriven or dropped dead letters: their offsets in a log-backed dead-letter topic. A cursor of the log keeps them,
# under a name that no channel has; the first redrive creates it. Retention ignores it.


# ====================================================================== logged
# A log-backed topic: its channels are cursors. If the topic switches to a log, its queues are delivered first; if it
# switches back, the log is.

# Gives the topic its log. earlier: channels in the journal that do not exist yet; may be None.
cdef int attach_log(Topic topic, TopicLog log, Earlier earlier, rule) except -1
cdef int follow_rule(Topic topic, rule) except -1          # the topic has a log; its rule may say memory
cdef void log_grew(Topic topic, int64_t records) noexcept
cdef void unhold_log(Topic topic) noexcept
cdef bint retain_log(Topic topic) except -1    # removes old segments, by the rule; whether to call again later
# Deletes the log that the topic has switched from; False: it is still needed.
cdef bint drop_log(Topic topic) except -1
# The first offset that a channel, or the topic itself, needs; the end of the log if none.
cdef int64_t needed_from(Topic topic) except -1
cdef int64_t ranks_between(TopicLog log, int64_t begin, int64_t end) noexcept


# ====================================================================== storages
# Logged publishes to a log: a batch is appended as a whole or not at all, directly from the receive buffer if it is
# short and in one piece; otherwise it is staged, in slices. Queued has queues in memory and on disk: a message goes to
# the channels at once (topic.direct), or waits in the topic's backlog.

cdef void storage_changed(Topic topic) noexcept     # after its log or logs has changed
