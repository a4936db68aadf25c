# Dead letters that were redriven or dropped: which offsets of a log-backed dead-letter topic these are. A cursor of the
# log keeps them, under a name that no channel has; the first redrive makes it. Retention does not look at it.

from nsqc.broker.topicstate cimport TopicState

# The topic has just got its log.
cdef int restore_settled(TopicState topic) except -1
