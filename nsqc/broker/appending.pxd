# Publishing to a topic that is kept in a log. A batch is appended as a whole or not at all: while it takes several
# slices, what is published of it is staged.

from libc.stdint cimport uint32_t
from nsqc.broker.topicstate cimport Batch, OpenBatch, TopicState

# Adds a message, with a new id; PutResult. more: its batch continues with the next one.
cdef int append(TopicState topic, const char *c_body, uint32_t size, uint32_t defer_ms, bint more) noexcept
# Topic.publish_slice() for a log.
cdef bint append_slice(TopicState topic, Batch *batch) noexcept
# The lines that are not empty, until the slice is over; where it ended. result: PutResult once all are published, or
# PUT_MEMORY.
cdef const char *append_lines(TopicState topic, const char *c_at, const char *c_end, OpenBatch batch,
                              int *result) noexcept
