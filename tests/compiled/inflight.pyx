"""The map of in-flight messages (nsqc.store.message), driven from Python."""

from libc.stdint cimport uint32_t

from nsqc.store.message cimport (Delivery, InFlightMap, delivery_free, delivery_new, inflight_add, inflight_find,
                                 inflight_free, inflight_remove, message_new)


cdef class InFlightTable:
    """Message ids and owners."""

    cdef InFlightMap map

    def __dealloc__(self):
        cdef uint32_t at
        if self.map.slots is not NULL:
            for at in range(self.map.mask + 1):
                if self.map.slots[at].delivery is not NULL:
                    delivery_free(self.map.slots[at].delivery)
            inflight_free(&self.map)

    def __len__(self):
        return self.map.count

    def add(self, bytes message_id not None, owner: int):
        """Adds an id of 16 digits, in flight to owner."""
        cdef Delivery *delivery = delivery_new(message_new(message_id, 0, NULL, 0), 1)
        delivery.owner = owner
        inflight_add(&self.map, delivery)

    def find(self, bytes message_id not None, owner: int):
        """The owner of a message, preferring `owner`; None if the id is unknown."""
        cdef Delivery *delivery = inflight_find(&self.map, message_id, owner)
        return None if delivery is NULL else delivery.owner

    def remove(self, bytes message_id not None, owner: int) -> bool:
        """Removes one with this id that belongs to owner; returns False if there is none."""
        cdef Delivery *delivery = inflight_find(&self.map, message_id, owner)
        if delivery is NULL or delivery.owner != owner:
            return False
        inflight_remove(&self.map, delivery)
        delivery_free(delivery)
        return True
