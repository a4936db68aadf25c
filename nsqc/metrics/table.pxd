# Rows of numbers with labels, as they were at one time, and their text. Whoever collects them does so on the loop, a
# little at a time; a worker thread makes the text without the GIL.

from libc.stdint cimport int64_t
from nsqc.metrics.times cimport Times, TwoTimes

cdef enum:
    MOST_COLUMNS = 10

# In place of a number: this row has no sample of that metric.
cdef int64_t ABSENT


cdef struct Row:
    int64_t label_end           # of its labels in Table.c_text; they begin where those of the row before end
    int64_t times               # index in Table.times; -1: it has no durations
    int64_t cells[10]           # by column


cdef class Table:
    cdef readonly int64_t count
    cdef int64_t room
    cdef Row *rows              # owned, like the following
    cdef char *c_text
    cdef int64_t text_length, text_room
    cdef TwoTimes *times
    cdef int64_t times_count, times_room

    # A row of zeros, labelled topic="…" and, unless that is None, channel="…"; its index. Raises MemoryError.
    cdef int64_t add(self, bytes topic, bytes channel) except -1
    cdef int add_times(self, int64_t row, const TwoTimes *times) except -1      # to those the row has


cdef struct Family:
    const Row *rows             # of its table; borrowed, like all pointers here
    int64_t row_count
    const char *c_text
    const TwoTimes *times
    int column                  # of cells; or which of TwoTimes
    bint is_times
    const char *c_head          # HELP, TYPE and UNIT lines
    int64_t head_bytes
    const char *c_name          # of the samples
    int64_t name_bytes


cdef class Text:
    cdef list kept              # what the families borrow from, like the following
    cdef tuple tables           # which are not added to any more
    cdef Family *families       # owned
    cdef int count
    cdef int at                 # the family that is next
    cdef int64_t row            # of its table; -1: its head
    cdef void _free_tables(self) noexcept
    cdef int64_t _fill(self, char *c_to, int64_t room) noexcept nogil
