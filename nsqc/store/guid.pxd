# Message ids: 64 bits, written as 16 hexadecimal digits.
#
#   bits   meaning
#   63-22  time in units of 2^20 ns (about a millisecond) since EPOCH_UNITS
#   21-12  node id
#   11-0   sequence within the unit

from libc.stdint cimport int64_t


cdef class GuidFactory:
    cdef int64_t node_bits      # node id, shifted into place
    cdef int64_t unit           # of the last id; may run ahead of the clock, never decreases
    cdef int64_t sequence       # of the last id within its unit

    @staticmethod
    cdef GuidFactory new(int64_t node_id, int64_t first_unit)

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
