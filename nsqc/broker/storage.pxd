# Where a topic keeps messages: memory and disk queue, or a log; and the flow to its channels.

from libc.stdint cimport int64_t

from nsqc.broker.topic cimport Topic
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
