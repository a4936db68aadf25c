# Sets of offsets, as ranges, and messages that wait, by offset. Both lie in blocks of a few hundred entries, ordered by
# offset: a change costs a binary search and moves part of a block, however many entries there are. No Python; a set has
# one owner, and no lock.

from libc.stdint cimport int64_t, uint16_t, uint32_t

cdef struct Range:
    int64_t first, end      # end is behind the last

cdef struct Waiting:
    int64_t offset
    int64_t due_ns          # wall clock, since 1970; 0: at once
    uint16_t attempts       # so far

cdef struct EntryBlock:
    int64_t low             # key of its first entry
    char *entries           # owned
    uint32_t count, room    # entries, at most MOST_ENTRIES

cdef struct Entries:
    # Entries whose first field is an int64_t, their key, in ascending order.
    EntryBlock *blocks      # owned; none of them is empty
    int64_t block_count, block_room
    int64_t count           # of entries

cdef struct Walk:
    # A place in Entries, all zeros: the first. A change of the set ends the walk.
    int64_t block
    uint32_t at

cdef struct OffsetSet:
    Entries ranges          # of Range: disjoint, and not adjacent
    int64_t offsets         # in all ranges

cdef struct WaitingSet:
    Entries entries         # of Waiting


# 0, or -1: no memory, and nothing is changed unless said.
cdef int offsets_add(OffsetSet *set, int64_t first, int64_t end) noexcept nogil
cdef int offsets_remove(OffsetSet *set, int64_t first, int64_t end) noexcept nogil
cdef bint offsets_have(OffsetSet *set, int64_t offset) noexcept nogil
# The next range, in ascending order; NULL: that was all.
cdef Range *offsets_next(OffsetSet *set, Walk *walk) noexcept nogil
# A walk that begins with the range of this offset, or the first behind it.
cdef Walk offsets_from(OffsetSet *set, int64_t offset) noexcept nogil
cdef void offsets_free(OffsetSet *set) noexcept nogil       # it is empty then

cdef int waiting_put(WaitingSet *set, Waiting *entry) noexcept nogil        # adds or replaces; 0, or -1: no memory
cdef Waiting *waiting_find(WaitingSet *set, int64_t offset) noexcept nogil  # valid until a change; NULL: not there
cdef void waiting_remove(WaitingSet *set, int64_t first, int64_t end) noexcept nogil
cdef Waiting *waiting_next(WaitingSet *set, Walk *walk) noexcept nogil      # as offsets_next
cdef Walk waiting_from(WaitingSet *set, int64_t offset) noexcept nogil
cdef void waiting_free(WaitingSet *set) noexcept nogil
