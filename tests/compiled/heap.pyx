"""The heap of deadlines (nsqc.store.message), driven from Python."""

from libc.stdint cimport int64_t, uint32_t

from nsqc.store.message cimport (Delivery, Heap, delivery_free, delivery_new, heap_first, heap_free, heap_moved,
                                 heap_push, heap_remove, message_new)


cdef class DeadlineHeap:
    """Numbered items with deadlines."""

    cdef Heap heap
    cdef dict items         # number to the address of its delivery

    def __cinit__(self):
        self.items = {}

    def __dealloc__(self):
        cdef uint32_t slot
        for slot in range(self.heap.count):
            delivery_free(self.heap.items[slot].delivery)
        heap_free(&self.heap)

    def __len__(self):
        return self.heap.count

    def push(self, number: int, int64_t deadline_ns):
        """Adds item number (16 bits), due at deadline_ns."""
        cdef Delivery *delivery = delivery_new(message_new(b"0" * 16, 0, NULL, 0), number)
        delivery.deadline_ns = deadline_ns
        heap_push(&self.heap, delivery)
        self.items[number] = <size_t> delivery

    def move(self, number: int, int64_t deadline_ns):
        """Changes the deadline of an item."""
        cdef Delivery *delivery = <Delivery *> <size_t> self.items[number]
        delivery.deadline_ns = deadline_ns
        heap_moved(&self.heap, delivery)

    def remove(self, number: int):
        """Removes an item from any position."""
        cdef Delivery *delivery = <Delivery *> <size_t> self.items.pop(number)
        heap_remove(&self.heap, delivery)
        delivery_free(delivery)

    def pop(self):
        """The earliest item's number and deadline; None if empty."""
        cdef Delivery *delivery = heap_first(&self.heap)
        if delivery is NULL:
            return None
        first = (delivery.attempts, delivery.deadline_ns)
        self.remove(delivery.attempts)
        return first

    def check(self) -> bool:
        """Whether order and slots hold everywhere."""
        cdef uint32_t slot
        for slot in range(self.heap.count):
            if self.heap.items[slot].delivery.slot != slot:
                return False
            if slot and self.heap.items[(slot - 1) >> 1].deadline_ns > self.heap.items[slot].deadline_ns:
                return False
        return True
