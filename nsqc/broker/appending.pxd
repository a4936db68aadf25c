# Publishes to a log. A batch is appended as a whole or not at all: directly from the receive buffer if it is short and
# in one piece; otherwise it is staged, in slices.

from nsqc.broker.topicstate cimport Storage, TopicState


cdef class Logged(Storage):
    pass
