# The flow of a topic's messages from its backlog to the channels.
#
# topic.direct holds exactly while the topic is started, not paused, has a channel, has no stuck channel, and has an
# empty backlog. Then publishes go straight to the channels.
#
# Otherwise it catches up in slices, unless the flow is blocked. Messages in memory go to the channels like new
# publishes. Messages on disk are copied to the channels' disks, and their places here are done when a commit has
# written all copies. Meanwhile publishers are held: a topic accepts half as many messages as it has passed on.

from libc.stdint cimport int64_t
from nsqc.broker.topicstate cimport TopicState


cdef inline bint flows(TopicState topic) noexcept:
    return (topic.started and not topic.paused and not topic.exiting and topic.stuck == 0 and topic.fan_count > 0)

cdef void flow_refresh(TopicState topic) noexcept           # after a change of anything that direct depends on
cdef void flow_slice(TopicState topic) noexcept             # passes on waiting messages until the slice is over
cdef int flow_begin(TopicState topic) except -1             # passes on at once as many as fit into a slice
cdef void flow_readable(TopicState topic) noexcept          # the backlog is readable
cdef void flow_unreadable(TopicState topic) noexcept        # it is not now: the read is retried later
cdef void flow_let_publish(TopicState topic, int64_t allowance) noexcept    # held publishers continue
cdef void flow_commit_began(TopicState topic) noexcept
cdef void flow_commit_ended(TopicState topic, int error) noexcept
cdef void flow_copies_done(TopicState topic) noexcept       # if no channel is stuck: all copies are written
cdef void flow_drop_leftover(TopicState topic) noexcept
cdef void flow_drop_places(TopicState topic) noexcept       # before the backlog is emptied
