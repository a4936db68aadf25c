# A snapshot of labelled rows of numbers, and their text. The loop collects rows in slices; a worker thread
# formats them without the GIL.

from libc.stdint cimport int64_t, uint64_t
from nsqc.metrics.times cimport TwoTimes

cdef enum:
    MOST_COLUMNS = 18

# stored instead of a number: no sample of that metric for this row
cdef int64_t ABSENT


cdef struct Histogram:
    uint64_t counts[15]         # by bucket; the last one is above all bounds
    uint64_t sum                # as in Times

cdef struct TwoHistograms:
    Histogram of[2]


cdef struct Row:
    Row *next
    const char *c_labels
    int64_t label_bytes
    TwoHistograms *histograms   # NULL: no durations
    int64_t cells[MOST_COLUMNS]     # by column


cdef struct Block:              # a mapping; its contents follow
    Block *next
    int64_t used


cdef class Table:
    cdef readonly int64_t count
    cdef Row *first
    cdef Row *last
    cdef TwoHistograms total    # of all rows
    cdef Block *blocks          # owned; all rows, labels and durations are in them. The newest is first

    # Adds a row of zeros, labelled topic="…" and, unless it is None, channel="…". Raises MemoryError.
    cdef Row *add(self, bytes topic, bytes channel) except NULL
    cdef int add_times(self, Row *row, TwoTimes *times) except -1     # adds to the row's durations
