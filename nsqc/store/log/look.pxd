# A first look at the folder of a log, without the GIL: what it has if nothing in it needs to be mended. A start looks
# at thousands of folders, and as a rule that is the case: then nothing else reads their files.

from libc.stdint cimport int64_t, uint32_t, uint64_t
from nsqc.store.log.journal cimport LogState
from nsqc.store.log.listing cimport Listing


cdef struct SegmentSeen:    # see nsqc/store/log/segments.pxd
    int64_t first, end, bytes, due_bytes, base_ns, last_ns
    uint32_t time
    uint32_t unsynced       # as the head of its index says

cdef struct SegmentName:
    int64_t first
    int kinds               # bits: which of its files there are

cdef struct Seen:
    bint clean              # segments and state are what the folder has. Otherwise nothing is known
    uint64_t id             # 0: it has none
    int64_t mark            # where numbering continues at the least
    SegmentSeen *segments   # owned
    int64_t count
    SegmentName *names      # owned; while it is looked at
    int64_t names_count, names_room
    Listing cursors         # owned
    LogState state          # owned


cdef class Looks:
    # Folders in order; threads look at one after the other, and whoever needs one that is not begun looks himself.
    cdef list folders       # bytes
    cdef Seen *seen         # owned: one for each folder
    cdef int *steps         # owned: how far each is
    cdef int64_t count, next
    cdef dict index         # folder to its index
