"""Message ids in increasing order, across restarts and when the clock is set back.

If the 4096 ids of a unit are used up or the clock has been set back, nsqd waits for the clock. This factory borrows
the next unit: it runs ahead of the clock until the clock catches up.

A restart continues above a bound that is on disk (broker/saved_ids.py), so no id exceeds that bound. The clock may,
after an idle time or a step: then ids stay below it until the bound is raised.
"""

cimport cython
from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t

from nsqc.wire.hton cimport store_i64

cdef enum:
    SEQUENCE_BITS = 12
    NODE_BITS = 10
    LAST_SEQUENCE = 4095
    UNIT_BITS = 20          # a unit is 2^20 ns

cdef int64_t EPOCH_UNITS = 1288834974288


cdef inline uint64_t hex_of(uint64_t number) noexcept nogil:
    """The 8 digits of a number below 2^32, most significant first; computed at once, since each message needs two."""
    cdef uint64_t letters
    number = (number | number << 16) & <uint64_t> 0x0000FFFF0000FFFF
    number = (number | number << 8) & <uint64_t> 0x00FF00FF00FF00FF
    number = (number | number << 4) & <uint64_t> 0x0F0F0F0F0F0F0F0F
    letters = (number + <uint64_t> 0x0606060606060606) >> 4 & <uint64_t> 0x0101010101010101
    return number + <uint64_t> 0x3030303030303030 + letters * (c'a' - c'0' - 10)


cdef void guid_write(int64_t id, char *c_to) noexcept nogil:
    store_i64(c_to, <int64_t> hex_of(<uint64_t> id >> 32))
    store_i64(c_to + 8, <int64_t> hex_of(<uint32_t> id))


cdef void guid_write_range(int64_t first, int64_t count, char *c_to) noexcept nogil:
    cdef int64_t index
    for index in range(count):
        guid_write(guid_after(first, index), c_to + 16 * index)


@cython.final
cdef class GuidFactory:
    """Creates the ids of one daemon; node_id is from 0 to 1023."""

    def __init__(self):
        raise TypeError("GuidFactory objects are made by GuidFactory.new()")

    @staticmethod
    cdef GuidFactory new(int64_t node_id, int64_t first_unit):
        cdef GuidFactory self = GuidFactory.__new__(GuidFactory)
        self.node_bits = node_id << SEQUENCE_BITS
        self.unit = first_unit
        self.sequence = LAST_SEQUENCE
        self.bound = self.follow_to = INT64_MAX
        self.reason = ""
        return self

    @staticmethod
    def make(node_id: int, first_unit: int = 0):
        """A factory whose ids start above first_unit, in units of 2^20 ns since 1970, without a bound."""
        return GuidFactory.new(node_id, first_unit)

    def set_bound(self, int64_t bound, int64_t follow_to):
        """No id may exceed the unit `bound`. Ids follow the clock up to follow_to: the units between are for ids that
        are created before the bound is raised."""
        self.bound, self.follow_to = bound, follow_to

    @property
    def is_low(self) -> bool:
        """Whether the bound has to be raised."""
        return self.unit >= self.follow_to

    cdef void next(self, int64_t wall_ns, char *c_to) noexcept:
        cdef int64_t unit = min(wall_ns >> UNIT_BITS, self.follow_to)
        cdef int64_t number
        if unit > self.unit:
            self.unit = unit
            self.sequence = 0
        elif self.sequence < LAST_SEQUENCE:
            self.sequence += 1
        else:
            self.unit += 1
            self.sequence = 0
        number = (self.unit - EPOCH_UNITS) << (SEQUENCE_BITS + NODE_BITS) | self.node_bits | self.sequence
        guid_write(number, c_to)

    cdef bytes last(self):
        cdef char c_id[16]
        guid_write((self.unit - EPOCH_UNITS) << (SEQUENCE_BITS + NODE_BITS) | self.node_bits | self.sequence, c_id)
        return c_id[:16]

    cdef int64_t take(self, int64_t count, int64_t wall_ns) noexcept:
        cdef int64_t next_ = 1 + max(self.unit << SEQUENCE_BITS | self.sequence,
                                     (min(wall_ns >> UNIT_BITS, self.follow_to) << SEQUENCE_BITS) - 1)
        cdef int64_t last = next_ + count - 1
        self.unit = last >> SEQUENCE_BITS
        self.sequence = last & LAST_SEQUENCE
        return (((next_ >> SEQUENCE_BITS) - EPOCH_UNITS) << (SEQUENCE_BITS + NODE_BITS) | self.node_bits
                | next_ & LAST_SEQUENCE)

    @property
    def reached(self) -> int:
        """The unit of the last id, in 2^20 ns since 1970."""
        return self.unit
