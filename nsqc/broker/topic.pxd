# A topic: publishes to its storage and channels; publishers that wait for room.

from libc.stdint cimport int64_t, uint32_t

from nsqc.broker.state cimport Once, OpenBatch, TopicState
from nsqc.store.work cimport LoopWork


# ====================================================================== room
# Publishers that wait for room (--publish-wait): a rule refused their publish, and they retry when messages have left.
# The longest waiting one goes first, so small publishes do not starve a batch.

# Whether a publish with this PutResult, the last one refused, may succeed once messages have left.
cdef bint room_helps(TopicState topic, int result) noexcept
# Has the slicer run the publisher when the last refused publish fits, or at until_ns, monotonic.
cdef void room_wait(TopicState topic, LoopWork publisher, int64_t until_ns) noexcept
cdef void room_leave(TopicState topic, LoopWork publisher) noexcept     # the publisher stops waiting
cdef void room_made(TopicState topic) noexcept                           # a message has left
cdef void room_end(TopicState topic) noexcept                            # all retry: the topic is being deleted


cdef class Room(LoopWork):
    cdef TopicState topic
    cdef object call


# ====================================================================== topic
# A topic: accepts publishes, and has channels. Its messages are in its storages (state.pxd); storage.pxd moves
# them to the channels.

cdef class Topic(TopicState):
    # Publishes a message with a new id; PutResult.
    cdef int publish_bytes(self, const char *c_body, uint32_t size, uint32_t defer_ms) noexcept
    # Publishes a dead letter, under the same conditions. c_origin: see Storage.put(). more, more_bytes: letters
    # published before it that no queue counts yet.
    cdef int publish_dead(self, const char *c_body, uint32_t size, const char *c_origin, uint32_t origin_size,
                          int64_t more, int64_t more_bytes) noexcept
    # Publishes a message with a publish id; PUT_TAKEN: another client is publishing it.
    cdef int publish_once(self, Once *once, const char *c_body, uint32_t size, uint32_t defer_ms) noexcept
    # Publishes messages of a batch until the slice is over; returns whether all are published, or the batch is refused:
    # batch.result.
    cdef bint publish_slice(self, OpenBatch batch) noexcept
    # Whether a publisher has to wait; if so, the slicer runs it later.
    cdef bint holds(self, LoopWork publisher) noexcept
    cdef object _settle(self, int result)
    # Why it has refused a message: PutResult.
    cdef object why(self, int result)
    cdef bint _delete_slice(self) noexcept
