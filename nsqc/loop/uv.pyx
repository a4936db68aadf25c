"""Hooks around a uvloop's wait for events. See the .pxd."""

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdlib cimport calloc, free
from posix.dlfcn cimport RTLD_LAZY, dlopen, dlsym
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

import uvloop

cdef enum:
    UV_CHECK = 2                # libuv's numbers of the kinds of handles
    UV_PREPARE = 9

ctypedef void (*uv_callback)(void *handle) noexcept nogil
cdef size_t (*uv_handle_size)(int kind) noexcept nogil
cdef int (*uv_prepare_init)(void *loop, void *handle) noexcept nogil
cdef int (*uv_prepare_start)(void *handle, uv_callback callback) noexcept nogil
cdef int (*uv_check_init)(void *loop, void *handle) noexcept nogil
cdef int (*uv_check_start)(void *handle, uv_callback callback) noexcept nogil
cdef void (*uv_unref)(void *handle) noexcept nogil
cdef void (*uv_close)(void *handle, uv_callback callback) noexcept nogil


cdef int64_t now_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t> now.tv_sec * 1000000000 + now.tv_nsec


cdef inline Hooks **hooks_of(void *handle) noexcept nogil:
    """The first member of each handle, `data`, belongs to its user."""
    return <Hooks **> handle


cdef void on_prepare(void *handle) noexcept nogil:
    cdef Hooks *hooks = hooks_of(handle)[0]
    hooks.before(hooks.state)


cdef void on_check(void *handle) noexcept nogil:
    cdef Hooks *hooks = hooks_of(handle)[0]
    hooks.after(hooks.state)


cdef void on_closed(void *handle) noexcept nogil:
    cdef Hooks *hooks = hooks_of(handle)[0]
    hooks.open -= 1
    if hooks.open == 0:
        release(hooks)


cdef void release(Hooks *hooks) noexcept nogil:
    free(hooks.prepare)
    free(hooks.check)
    free(hooks.state)
    free(hooks)


cdef void *symbol(void *library, const char *c_name) except NULL:
    cdef void *found = dlsym(library, c_name)
    if found is NULL:
        raise OSError(f"uvloop has no {c_name.decode()}")
    return found


cdef int find_symbols() except -1:
    """Raises OSError if uvloop's own libuv does not export its functions."""
    global uv_handle_size, uv_prepare_init, uv_prepare_start, uv_check_init, uv_check_start, uv_unref, uv_close
    global uv_now, uv_backend_fd, uv_backend_timeout
    cdef bytes path = uvloop.loop.__file__.encode()
    cdef void *library
    library = dlopen(path, RTLD_LAZY)       # already loaded: this adds a reference that is never released
    if library is NULL:
        raise OSError("uvloop's library cannot be opened")
    uv_handle_size = <size_t (*)(int) noexcept nogil> symbol(library, b"uv_handle_size")
    uv_prepare_init = <int (*)(void *, void *) noexcept nogil> symbol(library, b"uv_prepare_init")
    uv_prepare_start = <int (*)(void *, uv_callback) noexcept nogil> symbol(library, b"uv_prepare_start")
    uv_check_init = <int (*)(void *, void *) noexcept nogil> symbol(library, b"uv_check_init")
    uv_check_start = <int (*)(void *, uv_callback) noexcept nogil> symbol(library, b"uv_check_start")
    uv_unref = <void (*)(void *) noexcept nogil> symbol(library, b"uv_unref")
    uv_close = <void (*)(void *, uv_callback) noexcept nogil> symbol(library, b"uv_close")
    uv_now = <uint64_t (*)(void *) noexcept nogil> symbol(library, b"uv_now")
    uv_backend_fd = <int (*)(void *) noexcept nogil> symbol(library, b"uv_backend_fd")
    uv_backend_timeout = <int (*)(void *) noexcept nogil> symbol(library, b"uv_backend_timeout")
    return 0


cdef Hooks *hooks_open(object loop, Hook before, Hook after, void *state) except NULL:
    cdef Hooks *hooks = NULL
    try:
        find_symbols()
        hooks = <Hooks *> calloc(1, sizeof(Hooks))
        if hooks is NULL:
            raise MemoryError
        hooks.prepare = calloc(1, uv_handle_size(UV_PREPARE))
        hooks.check = calloc(1, uv_handle_size(UV_CHECK))
        if hooks.prepare is NULL or hooks.check is NULL:
            raise MemoryError
        hooks.loop = PyCapsule_GetPointer(uvloop.loop.libuv_get_loop_t_ptr(loop), NULL)
    except BaseException:
        if hooks is NULL:
            free(state)
        else:
            hooks.state = state
            release(hooks)
        raise
    hooks.before = before
    hooks.after = after
    hooks.state = state
    uv_prepare_init(hooks.loop, hooks.prepare)
    uv_check_init(hooks.loop, hooks.check)
    hooks.open = 2
    hooks_of(hooks.prepare)[0] = hooks
    hooks_of(hooks.check)[0] = hooks
    uv_prepare_start(hooks.prepare, on_prepare)
    uv_check_start(hooks.check, on_check)
    # They do not keep the loop running.
    uv_unref(hooks.prepare)
    uv_unref(hooks.check)
    return hooks


cdef void hooks_close(Hooks *hooks) noexcept:
    uv_close(hooks.prepare, on_closed)
    uv_close(hooks.check, on_closed)
