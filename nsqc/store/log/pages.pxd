# A stretch of a file as the page cache has it, without a copy: mapped, and only if all of it is in memory. Copying
# costs 0.09 µs for 230 bytes, mapping a third of that. On the loop only.
#
# A page may be taken away from a mapped file: when somebody cuts it off, or when memory was short and the disk then
# fails to give it back. Touching it raises SIGBUS, which would end the daemon. A handler puts zeros in its place and
# says so in lost: who reads a stretch looks there before it believes what it has read.

from libc.stdint cimport int64_t


cdef struct Pages:
    char *c_window          # owned mapping; NULL: none
    int64_t mapped, bytes   # of it, and of those that were in memory, from its beginning on
    int64_t file, at        # where it begins in which file
    int lost                # there are zeros in it that the file has not
    Pages *before           # in the list of all windows
    Pages *next


# Where so many bytes of a file lie that begin at an offset; most: how many may be mapped at once. NULL: not all are in
# memory (error EAGAIN), or so much of a file like this cannot be mapped (another one). file: a number for the file, and
# never another one's. What was mapped before stays until it lacks what is asked for.
cdef const char *pages_map(Pages *pages, int fd, int64_t file, int64_t at, int64_t length, int64_t most,
                           int *error) noexcept nogil
cdef void pages_unmap(Pages *pages) noexcept nogil

# Whether what was read of the stretch until now is not what the file has. The compiler does not move reads across it.
cdef inline bint pages_lost(Pages *pages) noexcept nogil:
    return (<volatile int *> &pages.lost)[0] != 0
