# Publishes to a log-backed topic. A batch is appended as a whole or not at all: from the buffer it arrived in, if it
# lies there in one piece and is not long; otherwise it is staged, in slices.

from libc.stdint cimport uint32_t
from nsqc.broker.topicstate cimport Batch, OpenBatch, TopicState

# Adds a message; PutResult.
cdef int append(TopicState topic, const char *c_body, uint32_t size, uint32_t defer_ms) noexcept
# Adds a dead letter with its origin: see frames_add(). PutResult.
cdef int append_dead(TopicState topic, const char *c_body, uint32_t size, const char *c_origin,
                     uint32_t origin_size) noexcept
# Topic.publish_slice() for a log.
cdef bint append_slice(TopicState topic, Batch *batch) noexcept
# The lines that are not empty, until the slice is over; where it ended. result: PutResult once all are published, or
# PUT_MEMORY.
cdef const char *append_lines(TopicState topic, const char *c_at, const char *c_end, OpenBatch batch,
                              uint32_t defer_ms, int *result) noexcept
