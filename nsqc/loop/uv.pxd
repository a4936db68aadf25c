# libuv, as contained in uvloop: two handles around the loop's wait for events, and libuv's own data about it.
#
# Hooks run in the loop's thread, without the GIL.

from libc.stdint cimport int64_t, uint64_t

ctypedef void (*Hook)(void *state) noexcept nogil


cdef struct Hooks:
    void *prepare
    void *check
    void *loop              # uv_loop_t, borrowed
    Hook before             # runs right before the wait
    Hook after              # runs after the wait and the handlers of its events
    void *state             # their argument, from malloc; owned
    int open                # handles that are not closed yet

# Takes ownership of state, even if it raises: OSError if uvloop does not export libuv's functions, MemoryError.
cdef Hooks *hooks_open(object loop, Hook before, Hook after, void *state) except NULL
# Must be called before the loop is closed. The loop frees hooks and state in its next iteration.
cdef void hooks_close(Hooks *hooks) noexcept

# Set once hooks_open() has returned.
cdef uint64_t (*uv_now)(void *loop) noexcept nogil                  # milliseconds: end of the last wait
cdef int (*uv_backend_fd)(void *loop) noexcept nogil                # the epoll descriptor
cdef int (*uv_backend_timeout)(void *loop) noexcept nogil           # milliseconds of the next wait; 0: no wait

cdef int64_t now_ns() noexcept nogil                                # monotonic
