"""Tracks the unfinished records of a disk queue, and which files to keep for them."""

from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

from nsqc.store.rules cimport CHECKS, broken

cdef enum:
    MAX_SPARE = 16384       # 56 bytes each; every message read from disk needs one for a while

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
    # RULE: a place is done exactly once. Twice, and two places would share its memory. Never, and files are kept
    # needlessly; the count of places reveals that.
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


def alive() -> int:
    """Existing places, in all queues."""
    return alive_count
