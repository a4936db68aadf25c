# A topic that is kept in a log: its channels are cursors there. What waited in memory and disk queues when that began
# is delivered first, and so is what the log has left when it ends.

from libc.stdint cimport int64_t
from nsqc.broker.channel cimport Channel
from nsqc.broker.topicstate cimport TopicState
from nsqc.store.log.earlier cimport Earlier
from nsqc.store.log.topiclog cimport TopicLog

# Gives the topic its log. earlier: what the journal says of channels that do not exist yet; may be None.
cdef int attach_log(TopicState topic, TopicLog log, Earlier earlier, rule) except -1
cdef int follow_rule(TopicState topic, rule) except -1          # the topic has a log: how that is kept
# start: where a new channel begins to read; None: with what the topic has kept for it, or behind what there is.
cdef int give_cursor(TopicState topic, Channel channel, start) except -1
cdef void log_grew(TopicState topic, int64_t records) noexcept
cdef void hold_log(TopicState topic) noexcept       # what is published from now on is for nobody, until unhold_log()
cdef void unhold_log(TopicState topic) noexcept
cdef void empty_log(TopicState topic) noexcept      # drops what no channel may read yet
cdef int64_t log_depth(TopicState topic) noexcept   # messages that no channel may read yet
cdef bint retain_log(TopicState topic) except -1    # removes what the rule does not keep; whether to come back later
# Deletes the log that the topic has switched from; False: something needs it.
cdef bint drop_log(TopicState topic) except -1
# The first offset that a channel, or the topic itself, needs; the next one: nothing does.
cdef int64_t needed_from(TopicState topic) except -1
cdef int64_t ranks_between(TopicLog log, int64_t begin, int64_t end) noexcept
cdef int close_log(TopicState topic) except -1      # for a stop; raises OSError if messages are lost
