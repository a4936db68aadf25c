"""The unacknowledged records of a disk queue (nsqc.store.message), driven from Python."""

from libc.stdint cimport int64_t

from nsqc.store.memory cimport CHECKS
from nsqc.store.message cimport Place, Unacked, unacked_add, unacked_count, unacked_done, unacked_drop


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
