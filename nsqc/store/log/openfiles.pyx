"""How many files logs keep open. See the .pxd."""

from libc.stdint cimport int64_t

cdef enum:
    MOST_OPEN = 1024
    MOST_WAITING = 64           # of jobs: what is closed too soon is opened again by the next write

cdef extern from *:
    """
    static int64_t nsqc_waiting_open = 0;   /* on all threads */
    static inline int nsqc_waits_open(int count, int64_t most) {
        if (__atomic_add_fetch(&nsqc_waiting_open, count, __ATOMIC_RELAXED) <= most)
            return 1;
        __atomic_sub_fetch(&nsqc_waiting_open, count, __ATOMIC_RELAXED);
        return 0;
    }
    static inline void nsqc_taken_back(int count) {
        __atomic_sub_fetch(&nsqc_waiting_open, count, __ATOMIC_RELAXED);
    }
    """
    bint nsqc_waits_open(int count, int64_t most) nogil
    void nsqc_taken_back(int count) nogil

cdef int64_t open_files = 0
cdef int64_t most_open = MOST_OPEN


cdef bint stays_open(int count) noexcept:
    global open_files
    if open_files + count > most_open:
        return False
    open_files += count
    return True


cdef void was_closed(int count) noexcept:
    global open_files
    open_files -= count


cdef bint waits_open(int count) noexcept nogil:
    return nsqc_waits_open(count, min(most_open, <int64_t> MOST_WAITING))


cdef void taken_back(int count) noexcept nogil:
    nsqc_taken_back(count)


def limit_to(int64_t count):
    """Limits the files that logs keep open; MOST_OPEN is the upper bound."""
    global most_open
    most_open = min(count, <int64_t> MOST_OPEN)
