# Records of a disk queue that are out: handed to a channel that is not done with them. The positions on disk stay at
# the first of these, so that a kill brings back what was in flight.
#
# Serial numbers count the records that were handed out, from 1 on. Bounded: beyond MOST_RECORDS or MOST_BYTES between
# the oldest and the newest, the oldest is let go of, and only a stop would keep it.

from libc.stdint cimport int64_t

cdef enum:
    MOST_RECORDS = 65536
    MOST_BYTES = 134217728

cdef struct TakenRecord:
    int64_t number, at      # the file, and where in it the record begins
    int64_t before          # bytes that were handed out before it
    bint done

cdef struct Taken:
    TakenRecord *records    # owned: a ring; record n lies at n & (room - 1)
    int64_t room            # a power of two; 0: no ring yet
    int64_t first           # the oldest that is not done with; next where there is none
    int64_t next            # of the record that will be handed out next
    int64_t bytes           # handed out so far

cdef int64_t taken_add(Taken *taken, int64_t number, int64_t at, int64_t length) noexcept nogil  # serial; 0: no memory
cdef bint taken_done(Taken *taken, int64_t serial) noexcept nogil      # whether the oldest is another one now
cdef int64_t taken_count(Taken *taken) noexcept nogil       # records from the oldest on, done with or not
cdef TakenRecord *taken_first(Taken *taken) noexcept nogil  # borrowed; NULL: none is out
cdef void taken_clear(Taken *taken) noexcept nogil          # all are done with
cdef void taken_free(Taken *taken) noexcept nogil           # the same, and the ring goes
