# Descriptors of segments and journals that logs keep open from one write to the next. Those that are too many are
# closed after each write.

cdef bint stays_open(int count) noexcept    # whether so many more may stay open; if so, was_closed() follows
cdef void was_closed(int count) noexcept
