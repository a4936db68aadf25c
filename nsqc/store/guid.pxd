# Message ids: 64 bits, written as 16 hexadecimal digits.
#
#   bits   meaning
#   63-22  time in units of 2^20 ns (about a millisecond) since EPOCH_UNITS
#   21-12  node id
#   11-0   sequence within the unit

from libc.stdint cimport int64_t

cdef enum:
    SPARE_UNITS = 1024          # of 4096 ids each, below the bound


cdef class GuidFactory:
    cdef int64_t node_bits      # node id, shifted into place
    cdef int64_t unit           # of the last id; may run ahead of the clock, never decreases
    cdef int64_t sequence       # of the last id within its unit
    cdef int64_t bound          # the highest unit that ids may reach: it is on disk; see set_bound()
    cdef int64_t follow_to      # ids follow the clock up to this unit
    cdef public str reason      # why the bound cannot be raised, for refused publishers

    @staticmethod
    cdef GuidFactory new(int64_t node_id, int64_t first_unit)

    # Whether publishes have to be refused: the remaining ids are for messages that are already accepted.
    cdef inline bint is_short(self) noexcept:
        return self.unit >= self.bound - SPARE_UNITS

    # Writes the next id, 16 digits, to c_to. wall_ns: the current time.
    cdef void next(self, int64_t wall_ns, char *c_to) noexcept
    cdef bytes last(self)                                           # the one that was written last
    # Draws consecutive ids and returns the first: the others are guid_after() it.
    cdef int64_t take(self, int64_t count, int64_t wall_ns) noexcept


# The id `count` after another one, within a range reserved by take().
cdef inline int64_t guid_after(int64_t first, int64_t count) noexcept nogil:
    cdef int64_t number = (first >> 22 << 12 | first & 0xFFF) + count
    return number >> 12 << 22 | first & 0x3FF000 | number & 0xFFF

cdef void guid_write(int64_t id, char *c_to) noexcept nogil     # 16 digits
# Writes consecutive ids reserved by take(), starting with this one.
cdef void guid_write_range(int64_t first, int64_t count, char *c_to) noexcept nogil
