# Redriven or dropped dead letters: their offsets in a log-backed dead-letter topic. A cursor of the log keeps them,
# under a name that no channel has; the first redrive creates it. Retention ignores it.

from nsqc.broker.topicstate cimport TopicState

# The topic has just received its log.
cdef int restore_settled(TopicState topic) except -1
