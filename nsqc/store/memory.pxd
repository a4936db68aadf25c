# Memory of messages: arenas of chunks, slabs in them; the clock and the checks of the debug build.

from libc.stdint cimport int64_t, uint32_t, uint64_t
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec


# ====================================================================== clock
# Two clocks, read once per event instead of once per message.
#
# Timestamps and ids use the wall clock. Deadlines use the monotonic clock: setting the time moves none of them.

cdef inline int64_t wall_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return <int64_t> now.tv_sec * 1000000000 + now.tv_nsec


cdef inline int64_t monotonic_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t> now.tv_sec * 1000000000 + now.tv_nsec


cdef enum:
    STEP_NS = 1000000000        # by less than this the wall clock is adjusted; more is a step: someone has set it


cdef class Clock:
    cdef int64_t wall           # nanoseconds since 1970, as of the last refresh
    cdef int64_t monotonic      # nanoseconds, as of the last refresh
    cdef int64_t offset         # wall - monotonic at the start, or after the last step
    cdef int64_t since          # wall at the start, or after the last step back: no later time is of this clock
    cdef uint64_t steps         # how many there were
    cdef int64_t ahead          # how far a timestamp was in the future, at most; 0: none was

    cdef void refresh(self) noexcept    # the first thing in every callback of the loop


# The age of a timestamp counts from this time. One in the future comes from before a step back, or from an earlier
# run: it counts as the moment when that was noticed.
cdef inline int64_t dated_ns(Clock clock, int64_t timestamp_ns) noexcept:
    if timestamp_ns - clock.wall < STEP_NS:
        return timestamp_ns
    clock.ahead = max(clock.ahead, timestamp_ns - clock.wall)
    return clock.since


# ====================================================================== rules
# Invariants of the store, checked at run time by the debug build. Each is stated where it is checked, as RULE.
#
#   if CHECKS and <the rule is broken>:
#       broken("what is wrong")

cdef extern from *:
    """
    #define NSQC_CHECKS NSQC_DEBUG
    """
    bint CHECKS "NSQC_CHECKS"       # a constant: a release build compiles the checks out

# Reports the message like an uncaught exception; the caller continues.
cdef void broken(const char *c_text) noexcept nogil


# ====================================================================== allocator

# Memory of the C library's allocator, apart from the slabs. Functions for Python only: never called per message.


# ====================================================================== arenas
# Memory chunks of 2 MiB, made resident ahead of use by a dedicated thread.
#
# The first touch of a page costs a page fault: a tenth of a microsecond, or up to 20 ms for a huge page where a
# hypervisor has reclaimed free memory. So the loop does not touch a new chunk if a resident one is free. Free chunks,
# whether populated ahead or returned, form one LIFO list. The thread populates chunks while they are taken faster
# than they are returned, using the kind of page that has been cheaper lately, and releases chunks unused for some
# seconds.
#
# Address space is reserved in arenas of 32 chunks, each for one kind of page. A released chunk stays in its arena,
# blank.
# Only the loop's thread may call chunk_take() and chunk_give(). The mutex protects all other state.

cdef enum:
    CHUNK_BYTES = 2097152

# A chunk aligned to its size; NULL: no memory. grows: the caller fills all of it and may soon need more, so the
# thread starts to populate. An unpopulated chunk becomes resident page by page, as it is used.
cdef void *chunk_take(bint grows) noexcept nogil
cdef void chunk_give(void *chunk) noexcept nogil


# ====================================================================== slab
# Memory for messages: chunks of 2 MiB, each divided into pieces of one size class. Size classes are dense: a piece is
# at most 1/16 larger than its contents. Allocations of 1/16 of a chunk or more get a separate mapping.
#
# Queues fill and drain in order, so chunks empty one after another and are returned to their arena.
#
# Call these only on the loop's thread.

cdef struct Chunk:
    Chunk *next             # in its class's list of chunks with free pieces, or in the spare list
    Chunk *previous
    void *free              # freed pieces, chained through their first word
    uint32_t used           # pieces handed out
    uint32_t fresh          # pieces never handed out
    uint32_t index          # of its class
    uint32_t piece_bytes    # of its class
    uint32_t listed         # in its class's list

cdef void *slab_alloc(size_t size) noexcept nogil           # NULL: no memory
cdef void slab_free(void *c_piece, size_t size) noexcept nogil     # size as allocated
