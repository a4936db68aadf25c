# Growing arrays, and binary search in sorted ones. Header only.

from libc.stdint cimport int64_t
from libc.stdlib cimport realloc
from libc.string cimport memmove


# Makes room for `need` items of `size` bytes, and for `least` when it first allocates; -1: no memory.
cdef inline int array_room(void **items, int64_t *room, int64_t need, size_t size, int64_t least) noexcept nogil:
    cdef int64_t more = max(need, 2 * room[0], least)
    cdef void *grown
    if need <= room[0]:
        return 0
    grown = realloc(items[0], <size_t> more * size)
    if grown is NULL:
        return -1
    items[0] = grown
    room[0] = more
    return 0


# Counts the leading items whose field is below a limit. `field` points to it in the first item; values ascend.
cdef inline int64_t array_below(const int64_t *field, size_t size, int64_t count, int64_t limit) noexcept nogil:
    cdef int64_t low = 0, high = count, middle
    while low < high:
        middle = (low + high) // 2
        if (<const int64_t *> (<const char *> field + middle * <int64_t> size))[0] < limit:
            low = middle + 1
        else:
            high = middle
    return low


# Makes room for one more item after items[first : first + count], which may move to the front; -1: no memory.
cdef inline int queue_room(void **items, int64_t *first, int64_t count, int64_t *room, size_t size,
                           int64_t least) noexcept nogil:
    if first[0] + count < room[0]:
        return 0
    if first[0] <= count:
        return array_room(items, room, room[0] + 1, size, least)
    memmove(items[0], <char *> items[0] + first[0] * <int64_t> size, <size_t> count * size)
    first[0] = 0
    return 0
