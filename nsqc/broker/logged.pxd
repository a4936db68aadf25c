# A log-backed topic: its channels are cursors. If the topic switches to a log, its queues are delivered first; if it
# switches back, the log is.

from libc.stdint cimport int64_t
from nsqc.broker.channel cimport Channel
from nsqc.broker.topicstate cimport TopicState
from nsqc.store.log.earlier cimport Earlier
from nsqc.store.log.topiclog cimport TopicLog

# Gives the topic its log. earlier: channels in the journal that do not exist yet; may be None.
cdef int attach_log(TopicState topic, TopicLog log, Earlier earlier, rule) except -1
cdef int follow_rule(TopicState topic, rule) except -1          # the topic has a log; its rule may say memory
# start: where a new channel begins to read; None: at the messages held for it, or at the end.
cdef int give_cursor(TopicState topic, Channel channel, start) except -1
cdef void log_grew(TopicState topic, int64_t records) noexcept
cdef void hold_log(TopicState topic) noexcept       # hides new messages from channels until unhold_log()
cdef void unhold_log(TopicState topic) noexcept
cdef void empty_log(TopicState topic) noexcept      # drops messages that are hidden from channels
cdef int64_t log_depth(TopicState topic) noexcept   # messages that are hidden from channels
cdef bint retain_log(TopicState topic) except -1    # removes old segments, by the rule; whether to call again later
# Deletes the log that the topic has switched from; False: it is still needed.
cdef bint drop_log(TopicState topic) except -1
# The first offset that a channel, or the topic itself, needs; the end of the log if none.
cdef int64_t needed_from(TopicState topic) except -1
cdef int64_t ranks_between(TopicLog log, int64_t begin, int64_t end) noexcept
cdef int close_log(TopicState topic) except -1      # for a stop; raises OSError if messages are lost
