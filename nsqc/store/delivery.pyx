"""Deliveries and their freelist: each message needs one briefly, so their memory is reused."""

from libc.stdint cimport int64_t, uint16_t
from libc.stdlib cimport free, malloc

from nsqc.store.message cimport message_unref

cdef enum:
    MAX_SPARE = 16384       # 64 bytes each; more are returned to the allocator

# The first word of a spare delivery points to the next one.
cdef Delivery *c_spare = NULL
cdef int64_t spares = 0
cdef int64_t alive_count = 0


cdef bint delivery_reserve() noexcept nogil:
    global c_spare, spares
    cdef Delivery *delivery
    if c_spare is not NULL:
        return True
    delivery = <Delivery *> malloc(sizeof(Delivery))
    if delivery is NULL:
        return False
    delivery.message = NULL
    c_spare = delivery
    spares = 1
    return True


cdef Delivery *delivery_new(Message *message, uint16_t attempts) noexcept nogil:
    global c_spare, spares, alive_count
    cdef Delivery *delivery = c_spare
    if delivery is not NULL:
        c_spare = <Delivery *> delivery.message
        spares -= 1
    else:
        delivery = <Delivery *> malloc(sizeof(Delivery))
        if delivery is NULL:
            return NULL
    alive_count += 1
    delivery.message = message
    delivery.attempts = attempts
    delivery.offset = -1
    delivery.owner = 0
    delivery.place = NULL
    return delivery


cdef Message *delivery_take(Delivery *delivery) noexcept nogil:
    global c_spare, spares, alive_count
    cdef Message *message = delivery.message
    alive_count -= 1
    if spares < MAX_SPARE:
        delivery.message = <Message *> c_spare
        c_spare = delivery
        spares += 1
    else:
        free(delivery)
    return message


cdef void delivery_free(Delivery *delivery) noexcept nogil:
    message_unref(delivery_take(delivery))


cdef int64_t delivery_alive() noexcept nogil:
    return alive_count


def alive() -> int:
    """Live deliveries: messages in flight or deferred, in all channels."""
    return delivery_alive()
