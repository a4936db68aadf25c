# Queues in memory and on disk: a message goes to the channels at once (topic.direct), or waits in the topic's backlog.

from nsqc.broker.topicstate cimport Storage


cdef class Queued(Storage):
    pass
