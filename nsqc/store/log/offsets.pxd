# Sets of offsets, as ranges: the unfinished messages of a channel, or the finished ones ahead of its cursor. Blocks
# hold a few hundred ranges each, so a change costs a binary search and moves part of one block. No Python; a set has
# one owner, and no lock.

from libc.stdint cimport int64_t, uint32_t

cdef enum:
    NO_ATTEMPTS = -1        # the number of deliveries is unknown

cdef struct Range:
    int64_t first, end      # end is the offset after the last
    int64_t due_ns          # wall clock, since 1970; 0: at once
    int attempts

cdef struct RangeBlock:
    Range *ranges           # owned
    uint32_t count
    int64_t room

cdef struct OffsetSet:      # disjoint ranges, in order; adjacent ones differ in due_ns or attempts
    RangeBlock *blocks      # owned; never empty
    int64_t block_count, block_room
    int64_t count           # ranges

cdef struct RangeWalk:      # a position in a set; all zeros: the first. Changing the set ends the walk
    int64_t block
    uint32_t at


# 0, or -1: no memory. put: sets these offsets to this range, and replaces existing ranges there.
cdef int offsets_put(OffsetSet *offsets, const Range *added) noexcept nogil
cdef int offsets_add(OffsetSet *offsets, int64_t first, int64_t end) noexcept nogil     # without attempts
cdef int offsets_remove(OffsetSet *offsets, int64_t first, int64_t end) noexcept nogil
cdef bint offsets_have(const OffsetSet *offsets, int64_t offset) noexcept nogil
# The next range, in ascending order; NULL at the end.
cdef Range *offsets_next(const OffsetSet *offsets, RangeWalk *walk) noexcept nogil
# Begins a walk at the range that contains an offset, or the first after it.
cdef RangeWalk offsets_from(const OffsetSet *offsets, int64_t offset) noexcept nogil
cdef void offsets_free(OffsetSet *offsets) noexcept nogil       # empties it
