"""Which records of a disk queue are out, and from where on the files must be kept for them."""

from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

cdef enum:
    FIRST_ROOM = 64


cdef int grow(Taken *taken) noexcept nogil:
    """A ring of twice the room, or the first one; -1: no memory."""
    cdef int64_t room = 2 * taken.room if taken.room else FIRST_ROOM
    cdef int64_t serial
    cdef TakenRecord *records = <TakenRecord *> malloc(<size_t> room * sizeof(TakenRecord))
    if records is NULL:
        return -1
    for serial in range(taken.first, taken.next):
        records[serial & (room - 1)] = taken.records[serial & (taken.room - 1)]
    free(taken.records)
    taken.records = records
    taken.room = room
    return 0


cdef inline void skip_done(Taken *taken) noexcept nogil:
    while taken.first < taken.next and taken.records[taken.first & (taken.room - 1)].done:
        taken.first += 1


cdef int64_t taken_add(Taken *taken, int64_t number, int64_t at, int64_t length) noexcept nogil:
    cdef TakenRecord *record
    if taken.next == 0:
        taken.first = taken.next = 1
    while taken.first < taken.next and (
            taken.next - taken.first >= MOST_RECORDS
            or taken.bytes - taken.records[taken.first & (taken.room - 1)].before >= MOST_BYTES):
        taken.first += 1
        skip_done(taken)
    if taken.next - taken.first >= taken.room and grow(taken) < 0:
        taken_clear(taken)      # a gap would make the count of records wrong
        return 0
    record = &taken.records[taken.next & (taken.room - 1)]
    record.number = number
    record.at = at
    record.before = taken.bytes
    record.done = False
    taken.bytes += length
    taken.next += 1
    return taken.next - 1


cdef bint taken_done(Taken *taken, int64_t serial) noexcept nogil:
    if serial < taken.first or serial >= taken.next:
        return False    # it was let go of
    taken.records[serial & (taken.room - 1)].done = True
    if serial != taken.first:
        return False
    skip_done(taken)
    return True


cdef int64_t taken_count(Taken *taken) noexcept nogil:
    return taken.next - taken.first


cdef TakenRecord *taken_first(Taken *taken) noexcept nogil:
    if taken.first == taken.next:
        return NULL
    return &taken.records[taken.first & (taken.room - 1)]


cdef void taken_clear(Taken *taken) noexcept nogil:
    taken.first = taken.next


cdef void taken_free(Taken *taken) noexcept nogil:
    taken_clear(taken)
    free(taken.records)
    taken.records = NULL
    taken.room = 0


cdef class TakenList:
    """The list for Python. Tests and benches drive the same C functions through it."""

    cdef Taken taken

    def __dealloc__(self):
        taken_free(&self.taken)

    def __len__(self):
        return taken_count(&self.taken)

    def add(self, int64_t number, int64_t at, int64_t length) -> int:
        """The serial of a record of that length, handed out now."""
        cdef int64_t serial = taken_add(&self.taken, number, at, length)
        if serial == 0:
            raise MemoryError
        return serial

    def done(self, int64_t serial) -> bool:
        """Whether the oldest has changed."""
        return taken_done(&self.taken, serial)

    def first(self):
        """(file, offset) of the oldest that is out; None: none is."""
        cdef TakenRecord *record = taken_first(&self.taken)
        return None if record is NULL else (record.number, record.at)

    def clear(self):
        """All are done with."""
        taken_clear(&self.taken)
