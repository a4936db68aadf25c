# Rings of ready consumers, one for each distance: a channel serves the nearest ring round-robin, and a farther one only
# while no nearer consumer is ready. Inline, since a consumer with RDY 1 leaves and enters with each message.
#
# The current ring is kept apart: with one distance, the others are checked only when no consumer is ready. References
# are borrowed from the channel's clients.

from cpython.object cimport PyObject
from nsqc.broker.consumer cimport DISTANCES, Consumer


cdef struct Ready:
    PyObject *c_next                # the consumer to serve next, in the nearest ring; NULL: none is ready
    int distance                    # of that ring
    PyObject *c_farther[DISTANCES]  # the other rings, by distance; NULL: empty


cdef inline void ring_add(PyObject **c_ring, Consumer consumer) noexcept:
    # It is served after all others.
    cdef Consumer head, tail
    if c_ring[0] is NULL:
        consumer.c_next = consumer.c_previous = <PyObject *> consumer
        c_ring[0] = <PyObject *> consumer
        return
    head = <Consumer> c_ring[0]
    tail = <Consumer> head.c_previous
    consumer.c_next = c_ring[0]
    consumer.c_previous = head.c_previous
    tail.c_next = head.c_previous = <PyObject *> consumer


cdef inline void ring_remove(PyObject **c_ring, Consumer consumer) noexcept:
    cdef Consumer before, following
    if consumer.c_next == <PyObject *> consumer:
        c_ring[0] = NULL
    else:
        before, following = <Consumer> consumer.c_previous, <Consumer> consumer.c_next
        before.c_next = consumer.c_next
        following.c_previous = consumer.c_previous
        if c_ring[0] == <PyObject *> consumer:
            c_ring[0] = consumer.c_next
    consumer.c_next = consumer.c_previous = NULL


cdef inline void ready_add(Ready *ready, Consumer consumer) noexcept:
    consumer.listed = True
    if consumer.distance > ready.distance and ready.c_next is not NULL:
        ring_add(&ready.c_farther[consumer.distance], consumer)
        return
    if consumer.distance != ready.distance:
        # The current ring, if any, joins the others.
        ready.c_farther[ready.distance] = ready.c_next
        ready.c_next = NULL
        ready.distance = consumer.distance
    ring_add(&ready.c_next, consumer)


cdef inline void ready_remove(Ready *ready, Consumer consumer) noexcept:
    cdef int distance
    if not consumer.listed:
        return
    consumer.listed = False
    if consumer.distance != ready.distance:
        ring_remove(&ready.c_farther[consumer.distance], consumer)
        return
    ring_remove(&ready.c_next, consumer)
    distance = ready.distance + 1
    while ready.c_next is NULL and distance < DISTANCES:
        if ready.c_farther[distance] is not NULL:
            ready.c_next = ready.c_farther[distance]
            ready.c_farther[distance] = NULL
            ready.distance = distance
        distance += 1
