"""Statistics of the C library's allocator, available from glibc 2.33 on."""

from libc.stddef cimport size_t
from posix.dlfcn cimport RTLD_LAZY, dlopen, dlsym

cdef struct Info:
    # struct mallinfo2 of <malloc.h>, missing on older systems.
    size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost

ctypedef Info (*Ask)() noexcept nogil
ctypedef int (*Trim)(size_t) noexcept nogil

cdef void *program = dlopen(NULL, RTLD_LAZY)
cdef Ask ask = <Ask> dlsym(program, b"mallinfo2")
cdef Trim trim = <Trim> dlsym(program, b"malloc_trim")


def heap() -> tuple:
    """Bytes (in use, free, free at the end, returnable to the system); zeros: unknown."""
    cdef Info info
    if ask is NULL:
        return 0, 0, 0
    info = ask()
    return info.uordblks + info.hblkhd, info.fordblks, info.keepcost


def return_free() -> None:
    """Returns free memory to the system if the C library can; call it on a thread, without the GIL."""
    if trim is not NULL:
        with nogil:
            trim(0)
