"""Stretches of files as the page cache has them. See the .pxd."""

from libc.errno cimport EAGAIN, EFBIG, errno
from libc.stdint cimport int64_t, uintptr_t
from libc.string cimport memset

cdef extern from "<sys/mman.h>" nogil:
    void *mmap(void *addr, size_t length, int prot, int flags, int fd, int64_t at)
    int munmap(void *addr, size_t length)
    int mincore(void *addr, size_t length, unsigned char *c_vec)
    int PROT_READ, MAP_SHARED, MAP_PRIVATE, MAP_ANONYMOUS, MAP_FIXED
    void *MAP_FAILED

cdef extern from "<signal.h>" nogil:
    ctypedef struct siginfo_t:
        void *si_addr
    ctypedef struct sigset_t:
        pass
    struct sigaction_s "sigaction":
        void (*sa_sigaction)(int, siginfo_t *, void *) noexcept nogil
        sigset_t sa_mask
        int sa_flags
    int sigaction(int number, const sigaction_s *action, sigaction_s *before)
    int sigemptyset(sigset_t *set)
    int SIGBUS, SA_SIGINFO

cdef enum:
    PAGE_BYTES = 4096
    WINDOW_BYTES = 524288       # mapped at a time, if there is so much
    MOST_PAGES = 1024           # of a window

cdef Pages *windows = NULL      # all that are mapped
cdef bint guarded = False
cdef sigaction_s before_ours
cdef long allocated = 0


cdef void on_bus_error(int number, siginfo_t *info, void *context) noexcept nogil:
    """A page of a window is gone: from here on the window has zeros."""
    cdef uintptr_t at = <uintptr_t> info.si_addr
    cdef Pages *pages = windows
    cdef uintptr_t begin
    while pages is not NULL:
        begin = <uintptr_t> pages.c_window
        if begin <= at < begin + <uintptr_t> pages.mapped:
            at -= at % PAGE_BYTES
            if mmap(<void *> at, <size_t> (begin + <uintptr_t> pages.mapped - at), PROT_READ,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED:
                pages.lost = 1
                return
            break
        pages = pages.next
    # Not ours: what was there before gets it when the instruction is tried again.
    sigaction(SIGBUS, &before_ours, NULL)


cdef void guard() noexcept nogil:
    global guarded
    cdef sigaction_s action
    guarded = True
    memset(&action, 0, sizeof(action))
    action.sa_sigaction = on_bus_error
    action.sa_flags = SA_SIGINFO
    sigemptyset(&action.sa_mask)
    sigaction(SIGBUS, &action, &before_ours)


cdef const char *pages_map(Pages *pages, int fd, int64_t file, int64_t at, int64_t length, int64_t most,
                           int *error) noexcept nogil:
    cdef int64_t begin = at - at % PAGE_BYTES, skip = at - begin
    error[0] = 0
    if (pages.c_window is not NULL and not pages.lost and pages.file == file and pages.at <= at
            and at + length <= pages.at + pages.bytes):
        return pages.c_window + (at - pages.at)
    pages_unmap(pages)
    error[0] = map_resident(pages, fd, begin, skip + max(length, min(most, <int64_t> WINDOW_BYTES)))
    if error[0]:
        return NULL
    if pages.bytes < skip + length:
        unmap(pages)
        error[0] = EAGAIN
        return NULL
    pages.file = file
    enter(pages)
    return pages.c_window + skip


cdef int map_resident(Pages *pages, int fd, int64_t at, int64_t length) noexcept nogil:
    """Maps this stretch and sees how much of it is in memory; 0 or errno."""
    cdef unsigned char[MOST_PAGES] c_vec
    cdef int64_t count = (length + PAGE_BYTES - 1) // PAGE_BYTES, index = 0
    cdef void *c_window
    cdef int error
    if count > MOST_PAGES:
        return EFBIG
    c_window = mmap(NULL, <size_t> (count * PAGE_BYTES), PROT_READ, MAP_SHARED, fd, at)
    if c_window == MAP_FAILED:
        return errno
    pages.c_window = <char *> c_window
    pages.mapped = count * PAGE_BYTES
    pages.at = at
    pages.lost = 0
    if mincore(c_window, <size_t> pages.mapped, c_vec) < 0:
        error = errno
        unmap(pages)
        return error
    while index < count and c_vec[index] & 1:
        index += 1
    pages.bytes = index * PAGE_BYTES
    return 0


cdef void enter(Pages *pages) noexcept nogil:
    global windows, allocated
    if not guarded:
        guard()
    pages.before = NULL
    pages.next = windows
    if windows is not NULL:
        windows.before = pages
    windows = pages
    allocated += 1


cdef void unmap(Pages *pages) noexcept nogil:
    munmap(pages.c_window, <size_t> pages.mapped)
    memset(pages, 0, sizeof(pages[0]))


cdef void pages_unmap(Pages *pages) noexcept nogil:
    global windows, allocated
    if pages.c_window is NULL:
        return
    if pages.before is not NULL:
        pages.before.next = pages.next
    else:
        windows = pages.next
    if pages.next is not NULL:
        pages.next.before = pages.before
    unmap(pages)
    allocated -= 1


def alive() -> int:
    """Windows that exist now."""
    return allocated
