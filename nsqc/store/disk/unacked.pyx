"""Which records of a disk queue are out, and from where on the files must be kept for them."""

from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

from nsqc.store.rules cimport CHECKS, broken

cdef enum:
    MAX_SPARE = 16384       # 56 bytes each; they come and go with every message that is read from disk

cdef Place *c_spare = NULL
cdef int64_t spares = 0
cdef int64_t alive_count = 0


cdef Place *place_new() noexcept nogil:
    global c_spare, spares, alive_count
    cdef Place *place = c_spare
    if place is not NULL:
        c_spare = place.newer
        spares -= 1
    else:
        place = <Place *> malloc(sizeof(Place))
        if place is NULL:
            return NULL
    alive_count += 1
    return place


cdef void place_free(Place *place) noexcept nogil:
    global c_spare, spares, alive_count
    alive_count -= 1
    if CHECKS:
        place.serial = -1
    if spares < MAX_SPARE:
        place.newer = c_spare
        c_spare = place
        spares += 1
    else:
        free(place)


cdef void unlink(Unacked *unacked, Place *place) noexcept nogil:
    place.linked = False
    if place.older is NULL:
        unacked.oldest = place.newer
    else:
        place.older.newer = place.newer
    if place.newer is NULL:
        unacked.newest = place.older
    else:
        place.newer.older = place.older


cdef Place *unacked_add(Unacked *unacked, int64_t number, int64_t at, int64_t length) noexcept nogil:
    cdef Place *place = place_new()
    if place is NULL:
        return NULL
    while unacked.oldest is not NULL and unacked.bytes - unacked.oldest.before >= MOST_BYTES:
        unlink(unacked, unacked.oldest)
    place.number = number
    place.at = at
    place.serial = unacked.serial
    place.before = unacked.bytes
    place.linked = True
    place.newer = NULL
    place.older = unacked.newest
    if unacked.newest is NULL:
        unacked.oldest = place
    else:
        unacked.newest.newer = place
    unacked.newest = place
    unacked.serial += 1
    unacked.bytes += length
    return place


cdef bint unacked_done(Unacked *unacked, Place *place) noexcept nogil:
    cdef bint oldest = unacked.oldest is place
    # RULE: a place is done exactly once. Twice, and its memory would be two places; never, and files stay for nobody,
    # which the count of places tells.
    if CHECKS and place.serial < 0:
        broken("a place is done twice")
        return False
    if place.linked:
        unlink(unacked, place)
    place_free(place)
    return oldest


cdef int64_t unacked_count(Unacked *unacked) noexcept nogil:
    return 0 if unacked.oldest is NULL else unacked.serial - unacked.oldest.serial


cdef void unacked_drop(Unacked *unacked) noexcept nogil:
    while unacked.oldest is not NULL:
        unlink(unacked, unacked.oldest)


cdef int64_t places_alive() noexcept nogil:
    return alive_count


cdef class UnackedList:
    """The chain for Python. Tests and benches drive the same C functions through it."""

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
        """What nobody may do, and the debug build must notice; for its test."""
        cdef Place *place = <Place *> <size_t> self.places.pop(serial)
        unacked_done(&self.unacked, place)
        if CHECKS:
            unacked_done(&self.unacked, place)

    def first(self):
        """(file, offset) of the oldest that is out; None: none is."""
        cdef Place *place = self.unacked.oldest
        return None if place is NULL else (place.number, place.at)

    def drop(self):
        """Nothing is out any more."""
        unacked_drop(&self.unacked)


def alive() -> int:
    """Places that exist now, of all queues."""
    return alive_count
