# Descriptors of segments and journals that logs keep open from one write to the next. Those that are too many are
# closed after each write.

cdef bint stays_open(int count) noexcept    # whether this many more may stay open; if so, was_closed() follows
cdef void was_closed(int count) noexcept

# The same for what a job has opened, on a thread perhaps, until the loop has taken the job back: thousands may have
# ended by then. If this many may stay open, taken_back() follows.
cdef bint waits_open(int count) noexcept nogil
cdef void taken_back(int count) noexcept nogil
