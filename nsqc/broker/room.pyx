"""Publishers that wait for room. See the .pxd."""

cimport cython
from libc.stdint cimport int64_t

from nsqc.broker.bounds cimport has_room
from nsqc.store.backlog cimport PUT_FULL, PUT_NO_SPACE
from nsqc.store.clock cimport monotonic_ns

from bisect import insort

# A periodic check finds room that no delivery makes: retention, an expiry, a changed rule, a drain.
cdef int64_t LOOK_NS = 50000000
cdef int64_t ROUND_NS = 500000      # timers of the loop have steps of a millisecond
cdef int64_t waited = 0

cdef enum:
    AT_ONCE = 64                    # publishers that retry in one loop iteration: thousands may have the same deadline


cdef bint room_helps(TopicState topic, int result) noexcept:
    if topic.exiting:
        return False
    if result == PUT_NO_SPACE:
        topic.bound_count = topic.bound_bytes = 0       # a full log has room for nothing
        return topic.log_full
    return result == PUT_FULL and not topic.bound_lasts


cdef void room_wait(TopicState topic, LoopWork publisher, int64_t until_ns) noexcept:
    global waited
    waited += 1
    # The number breaks ties, as publishers cannot be compared.
    insort(topic.crowd, (until_ns, waited, publisher, topic.bound_count, topic.bound_bytes))
    topic.crowded = True
    if not topic.looking:
        look_later(topic, False)


cdef void room_leave(TopicState topic, LoopWork publisher) noexcept:
    topic.crowd = [waiting for waiting in topic.crowd if waiting[2] is not publisher]
    topic.crowded = len(topic.crowd) > 0


cdef void room_made(TopicState topic) noexcept:
    """Has publishers retry, as many as there is room for, some at once."""
    cdef int64_t count = 0, body_bytes = 0
    cdef int left = AT_ONCE
    cdef LoopWork publisher
    while left and topic.crowd and not topic.log_full:
        _, _, publisher, its_count, its_bytes = topic.crowd[0]
        count += <int64_t> its_count
        body_bytes += <int64_t> its_bytes
        if topic.bounded and not has_room(topic, count, body_bytes, False):
            break
        del topic.crowd[0]
        topic.slicer.add(publisher)
        left -= 1
    topic.crowded = len(topic.crowd) > 0


cdef void room_end(TopicState topic) noexcept:
    try:
        _look(topic)
    except Exception as error:
        topic.slicer.loop.call_exception_handler({"message": "publishers that wait", "exception": error})


cdef int look_later(TopicState topic, bint soon) except -1:
    cdef int64_t left_ns
    loop = topic.slicer.loop
    topic.looking = loop is not None and topic.crowded
    if topic.looking:
        left_ns = 0 if soon else min(LOOK_NS, <int64_t> topic.crowd[0][0] - monotonic_ns())
        loop.call_later((max(left_ns, <int64_t> 0) + ROUND_NS) / 1e9, _look, topic)
    return 0


def _look(TopicState topic not None):
    """Has publishers retry whose timeout has passed, and those that there is room for."""
    cdef LoopWork publisher
    cdef int64_t now = monotonic_ns()
    cdef int left = AT_ONCE
    cdef bint ends = topic.exiting or topic.owner.draining
    while left and topic.crowd and (ends or topic.crowd[0][0] <= now):
        publisher = topic.crowd[0][2]
        del topic.crowd[0]
        topic.slicer.add(publisher)
        left -= 1
    topic.crowded = len(topic.crowd) > 0
    if left:
        room_made(topic)
    look_later(topic, left == 0)


@cython.final
cdef class Room(LoopWork):
    """A waiting publish over HTTP. See the .pyi."""

    def __init__(self, TopicState topic not None, int64_t until_ns, call):
        self.topic = topic
        self.call = call
        room_wait(topic, self, until_ns)

    cdef bint run(self) noexcept:
        self.call()
        return False

    def leave(self):
        """See the .pyi."""
        room_leave(self.topic, self)


def helps(TopicState topic not None, bint full) -> bool:
    """See the .pyi."""
    return room_helps(topic, PUT_FULL if full else PUT_NO_SPACE)
