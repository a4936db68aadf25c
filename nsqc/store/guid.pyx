"""Message ids that rise in the order they are made, across restarts and when the clock is set back.

If the 4096 ids of a unit are used up or the clock has been set back, nsqd waits for the clock. This factory borrows the
next unit: it runs ahead of the clock for a moment, and the clock catches up. broker/nsqc_dat.py saves how far it has
come, so a restart continues above that.
"""

cimport cython
from libc.stdint cimport int64_t

cdef enum:
    SEQUENCE_BITS = 12
    NODE_BITS = 10
    LAST_SEQUENCE = 4095
    UNIT_BITS = 20          # a unit is 2^20 ns

cdef int64_t EPOCH_UNITS = 1288834974288
cdef const char *DIGITS = b"0123456789abcdef"


@cython.final
cdef class GuidFactory:
    """Makes the ids of one daemon; node_id is from 0 to 1023."""

    def __init__(self):
        raise TypeError("GuidFactory objects are made by GuidFactory.new()")

    @staticmethod
    cdef GuidFactory new(int64_t node_id, int64_t first_unit):
        cdef GuidFactory self = GuidFactory.__new__(GuidFactory)
        self.node_bits = node_id << SEQUENCE_BITS
        self.unit = first_unit
        self.sequence = LAST_SEQUENCE
        return self

    @staticmethod
    def make(node_id: int, first_unit: int = 0):
        """A factory whose ids lie above first_unit, in units of 2^20 ns since 1970."""
        return GuidFactory.new(node_id, first_unit)

    cdef void next(self, int64_t wall_ns, char *c_to) noexcept:
        cdef int64_t unit = wall_ns >> UNIT_BITS
        cdef int64_t number
        cdef int at
        if unit > self.unit:
            self.unit = unit
            self.sequence = 0
        elif self.sequence < LAST_SEQUENCE:
            self.sequence += 1
        else:
            self.unit += 1
            self.sequence = 0
        number = (self.unit - EPOCH_UNITS) << (SEQUENCE_BITS + NODE_BITS) | self.node_bits | self.sequence
        for at in range(15, -1, -1):
            c_to[at] = DIGITS[number & 15]
            number >>= 4

    @property
    def reached(self) -> int:
        """The unit of the last id, in 2^20 ns since 1970."""
        return self.unit
