# A topic: fans each message out to its channels at once, or queues it while it cannot.
#
# direct holds exactly while it is started, not paused, has a channel, none of its channels is stuck, and nothing waits
# in its own backlog. Then a put goes straight through to the channels.
#
# Otherwise it catches up in slices, unless something keeps messages from flowing. What waits in memory goes to the
# channels as if it were published now. What waits on disk is copied to their disks, and its place here is done when a
# commit has written all copies. Meanwhile publishers are held: a topic accepts half as many messages as it has passed
# on.

from libc.stdint cimport int64_t, uint32_t
from nsqc.broker.seams cimport Publisher
from nsqc.broker.topicstate cimport Batch, Once, OpenBatch, TopicState
from nsqc.store.log.buffer cimport Buffer
from nsqc.store.message cimport Message


cdef class Topic(TopicState):
    # Makes a message with a new id and puts it; PutResult.
    cdef int publish_bytes(self, const char *c_body, uint32_t size, uint32_t defer_ms) noexcept
    # The same for a publish with an id; PUT_TAKEN: another client is publishing it.
    cdef int publish_once(self, Once *once, const char *c_body, uint32_t size, uint32_t defer_ms) noexcept
    # Gives a message its id and puts it; takes the reference in any case.
    cdef int publish_gathered(self, Message *message, uint32_t defer_ms) noexcept
    # Publishes messages of a batch until the slice is over; whether all of them are published.
    cdef bint publish_slice(self, Batch *batch) noexcept
    # Whether a publisher has to wait before it continues; if so, publish_on() follows.
    cdef bint _publish_some(self, Batch *batch) noexcept
    cdef const char *_publish_some_lines(self, const char *c_at, const char *c_end, OpenBatch batch,
                                         uint32_t defer_ms, int *result) noexcept
    cdef int _publish_staged(self, Buffer *staged, uint32_t defer_ms) noexcept
    cdef bint holds(self, Publisher publisher) noexcept
    # Takes the reference unless it is_refused().
    cdef int put(self, Message *message, uint32_t defer_ms) noexcept
    # Messages that wait in the topic itself, and those of them on disk.
    cdef int64_t count_waiting(self) noexcept
    cdef int64_t count_on_disk(self) noexcept
    cdef bint _fits(self, uint32_t defer_ms) noexcept   # whether put() would not write it to disk
    cdef void rules_changed(self) noexcept              # of its channels
    cdef object _settle(self, int result)
    cdef int _fan_out(self, Message *message, uint32_t attempts, uint32_t defer_ms) noexcept
    cdef bint _flows(self) noexcept
    cdef bint _holds(self) noexcept
    cdef bint _drain(self) noexcept
    cdef void _let_publish(self, int64_t allowance) noexcept
    cdef void _copies_done(self) noexcept
    cdef void _drop_places(self) noexcept
    cdef void _check_copies(self) noexcept
    cdef bint _delete_slice(self) noexcept
    cdef void _try_again(self) noexcept
