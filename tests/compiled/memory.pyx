"""Messages in memory (nsqc.store.memory and message), driven from Python: clock, ids, queues, deliveries."""

from libc.stdint cimport int64_t, uint32_t

from nsqc.store.memory cimport CHECKS, Clock
from nsqc.store.message cimport (Delivery, Entry, Fifo, FifoWalk, GuidFactory, Heap, InFlightMap, Message, Place,
                                 Unacked, delivery_free, delivery_new, delivery_reserve, delivery_take, fifo_free,
                                 fifo_look, fifo_pop, fifo_push, heap_first, heap_free, heap_moved, heap_push,
                                 heap_remove, inflight_add, inflight_find, inflight_free, inflight_remove, message_new,
                                 message_unref, unacked_add, unacked_count, unacked_done, unacked_drop)
from nsqc.wire.const cimport MESSAGE_ID_BYTES


# ====================================================================== clock


def read(Clock clock not None) -> tuple:
    """(wall, monotonic) in nanoseconds, as of the last refresh."""
    return clock.wall, clock.monotonic


def refresh(Clock clock not None):
    """Reads both clocks."""
    clock.refresh()


# ====================================================================== guid


def next_id(GuidFactory factory not None, wall_ns: int) -> bytes:
    """The next id for a time in nanoseconds since 1970."""
    cdef char digits[MESSAGE_ID_BYTES]
    factory.next(wall_ns, digits)
    return digits[:MESSAGE_ID_BYTES]


# ====================================================================== fifo


cdef class MemoryQueue:
    """Bodies in, bodies out."""

    cdef Fifo fifo

    def __dealloc__(self):
        fifo_free(&self.fifo)

    def __len__(self):
        return self.fifo.count

    def push(self, bytes body not None, attempts: int = 0, defer_ms: int = 0):
        """Adds a message."""
        if fifo_push(&self.fifo, message_new(b"0" * 16, 0, body, <uint32_t> len(body)), attempts, defer_ms) < 0:
            raise MemoryError

    def pop(self):
        """The oldest message's (body, attempts, defer_ms); None if empty."""
        cdef Entry entry
        if not fifo_pop(&self.fifo, &entry):
            return None
        body = entry.message.body[:entry.message.size]
        message_unref(entry.message)
        return body, entry.attempts, entry.defer_ms

    def clear(self):
        """Drops everything."""
        fifo_free(&self.fifo)

    def place(self):
        """A cursor at the beginning."""
        return Look(self)


cdef class Look:
    """A read-only cursor into a queue."""

    cdef MemoryQueue queue
    cdef FifoWalk walk

    def __init__(self, MemoryQueue queue not None):
        self.queue = queue

    def look(self):
        """Returns the body there and advances; None at the end. Counts the calls that were needed."""
        cdef Entry entry
        cdef int found, calls = 0
        while True:
            found = fifo_look(&self.queue.fifo, &self.walk, &entry)
            calls += 1
            if found >= 0:
                break
        if not found:
            return None
        self.walk.at += 1
        return entry.message.body[:entry.message.size], calls

    def move(self, int at):
        """Moves to another number."""
        self.walk.at = at


# ====================================================================== delivery


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


# ====================================================================== heap


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


# ====================================================================== inflight


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


# ====================================================================== unacked


cdef class UnackedList:
    """A chain of places, each known by its serial."""

    cdef Unacked unacked
    cdef dict places        # serial to the address of its place

    def __cinit__(self):
        self.places = {}

    def __dealloc__(self):
        for serial in list(self.places):
            self.done(serial)

    def __len__(self):
        return unacked_count(&self.unacked)

    def add(self, int64_t number, int64_t at, int64_t length) -> int:
        """The serial of a record of that length, handed out now."""
        cdef Place *place = unacked_add(&self.unacked, number, at, length)
        if place is NULL:
            raise MemoryError
        self.places[place.serial] = <size_t> place
        return place.serial

    def done(self, serial: int) -> bool:
        """Whether the oldest has changed."""
        return unacked_done(&self.unacked, <Place *> <size_t> self.places.pop(serial))

    def done_twice(self, serial: int):
        """Breaks the rules on purpose; the debug build must notice."""
        cdef Place *place = <Place *> <size_t> self.places.pop(serial)
        unacked_done(&self.unacked, place)
        if CHECKS:
            unacked_done(&self.unacked, place)

    def first(self):
        """(file, offset) of the oldest unacknowledged record; None: there is none."""
        cdef Place *place = self.unacked.oldest
        return None if place is NULL else (place.number, place.at)

    def drop(self):
        """Forgets all records."""
        unacked_drop(&self.unacked)
