# Publishes to a log. A batch is appended as a whole or not at all: directly from the receive buffer if it is short and
# in one piece; otherwise it is staged, in slices.

from libc.stdint cimport uint32_t
from nsqc.broker.topicstate cimport Storage, TopicState


cdef class Logged(Storage):
    pass


# Adds a dead letter with its origin: see frames_add(). PutResult.
cdef int append_dead(TopicState topic, const char *c_body, uint32_t size, const char *c_origin,
                     uint32_t origin_size) noexcept
