"""Publishes that wait for room. See the .pxd."""

from libc.stdint cimport int64_t

from nsqc.broker.openbatch cimport OpenBatch
from nsqc.broker.room cimport room_helps, room_leave, room_wait
from nsqc.broker.topic cimport Topic
from nsqc.store.backlog cimport PUT_EXITING, PUT_MEMORY
from nsqc.store.clock cimport monotonic_ns


cdef bint begin_wait(Session session) noexcept:
    cdef OpenBatch batch = session.batch
    cdef Topic topic = <Topic> batch.topic
    cdef int64_t now
    if topic.exiting:
        batch.result = PUT_EXITING
        return False
    if session.limits.publish_wait_ns == 0 or not room_helps(topic, batch.result):
        return False
    now = monotonic_ns()
    if session.room_until_ns == 0:
        session.room_until_ns = now + session.limits.publish_wait_ns
    if now >= session.room_until_ns:
        return False
    batch.result = PUT_MEMORY
    batch.open = session.awaits_room = True
    return True


cdef void wait_for_room(Session session, LoopWork publisher) noexcept:
    room_wait(<Topic> session.batch.topic, publisher, session.room_until_ns)


cdef void end_wait(Session session, LoopWork publisher) noexcept:
    if session.awaits_room:
        room_leave(<Topic> session.batch.topic, publisher)
        session.room_until_ns = 1
