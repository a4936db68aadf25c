"""Deliveries (nsqc.store.message), driven from Python."""

from nsqc.store.message cimport (Delivery, Message, delivery_free, delivery_new, delivery_reserve, delivery_take,
                                 message_new, message_unref)


cdef class Deliveries:
    """A stack of deliveries, each with its own message."""

    cdef list addresses

    def __init__(self):
        self.addresses = []

    def __dealloc__(self):
        while self.addresses:
            self.drop()

    def add(self, bytes body not None, attempts: int):
        """Reserves memory and makes a delivery of it; returns (owner, attempts, whether it has a place)."""
        cdef Delivery *delivery
        if not delivery_reserve():
            raise MemoryError
        delivery = delivery_new(message_new(b"0" * 16, 0, body, <unsigned int> len(body)), attempts)
        self.addresses.append(<size_t> delivery)
        fields = (delivery.owner, delivery.attempts, delivery.place is not NULL)
        delivery.owner = 7
        return fields

    def take(self) -> bytes:
        """Frees the newest and returns the body of its message, which outlives it."""
        cdef Message *message = delivery_take(<Delivery *> <size_t> self.addresses.pop())
        body = message.body[:message.size]
        message_unref(message)
        return body

    def drop(self):
        """Frees the newest with its message."""
        delivery_free(<Delivery *> <size_t> self.addresses.pop())
