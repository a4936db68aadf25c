# The ring of consumers that are ready for more: a channel serves them in turns. Inline, since a consumer with RDY 1
# leaves and enters it with each message.
#
# c_ready is the consumer to serve next, NULL where none is ready. References are borrowed from the channel's clients.

from cpython.object cimport PyObject
from nsqc.broker.consumer cimport Consumer


cdef inline void ring_add(PyObject **c_ready, Consumer consumer) noexcept:
    # It is served after all others.
    cdef Consumer head, tail
    consumer.listed = True
    if c_ready[0] is NULL:
        consumer.c_next = consumer.c_previous = <PyObject *> consumer
        c_ready[0] = <PyObject *> consumer
        return
    head = <Consumer> c_ready[0]
    tail = <Consumer> head.c_previous
    consumer.c_next = c_ready[0]
    consumer.c_previous = head.c_previous
    tail.c_next = head.c_previous = <PyObject *> consumer


cdef inline void ring_remove(PyObject **c_ready, Consumer consumer) noexcept:
    cdef Consumer before, behind
    if not consumer.listed:
        return
    consumer.listed = False
    if consumer.c_next == <PyObject *> consumer:
        c_ready[0] = NULL
    else:
        before, behind = <Consumer> consumer.c_previous, <Consumer> consumer.c_next
        before.c_next = consumer.c_next
        behind.c_previous = consumer.c_previous
        if c_ready[0] == <PyObject *> consumer:
            c_ready[0] = consumer.c_next
    consumer.c_next = consumer.c_previous = NULL
