# Ranges of a segment: which records are intact. The functions are for Python: see the .pyi.

from libc.stdint cimport int64_t
from nsqc.store.disk.segment cimport Window
from nsqc.store.log.resume cimport Torn


cdef struct Range:
    Window data             # of the records
    Window index            # of their entries
    int data_fd, index_fd   # borrowed
    int64_t segment         # offset of the first record of the segment
    int64_t next            # offset behind the segment's last record
    Torn torn               # where records are searched, and with what
    Window search

cdef struct Run:            # of intact records
    int64_t first, next     # offsets: of the first, behind the last
    int64_t start, end      # positions, likewise
    int64_t damaged         # records before it that are not intact
    int64_t lines           # bytes of its lines of JSON
