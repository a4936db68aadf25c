"""Watches the iterations of a uvloop. See the .pxd."""

cimport cython
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport INT64_MAX, int64_t, uint64_t
from libc.stdlib cimport calloc, free
from posix.dlfcn cimport RTLD_LAZY, dlopen, dlsym
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

import time

import uvloop

cdef enum:
    UV_CHECK = 2                # libuv's numbers of the kinds of handles
    UV_PREPARE = 9
    NS_PER_MS = 1000000
    WORTH = 4                   # a handler is named if it took this part of the limit

# Of libuv, which uvloop contains and shows.
ctypedef void (*uv_callback)(void *handle) noexcept nogil
cdef size_t (*uv_handle_size)(int kind) noexcept nogil
cdef int (*uv_prepare_init)(void *loop, void *handle) noexcept nogil
cdef int (*uv_prepare_start)(void *handle, uv_callback callback) noexcept nogil
cdef int (*uv_check_init)(void *loop, void *handle) noexcept nogil
cdef int (*uv_check_start)(void *handle, uv_callback callback) noexcept nogil
cdef void (*uv_unref)(void *handle) noexcept nogil
cdef void (*uv_close)(void *handle, uv_callback callback) noexcept nogil
cdef uint64_t (*uv_now)(void *loop) noexcept nogil

spans.longest_ns = INT64_MAX
cdef str longest = ""


cdef void name_span(const char *c_kind, object what, int64_t ns) noexcept:
    name(c_kind.decode(), what, ns)


cdef void name(str kind, object what, int64_t ns) noexcept:
    global longest
    if spans.named and ns - (ns >> 3) <= spans.longest_ns:
        return      # it contains the other, which says more
    spans.longest_ns = ns
    spans.named = True
    try:
        longest = f"{kind} {what}".rstrip()
    except Exception:
        longest = kind


def span_began() -> int:
    """For handlers in Python: monotonic nanoseconds, which span_ended() gets."""
    return time.monotonic_ns()


def span_ended(int64_t began_ns, str kind not None, what=""):
    """The end of a handler in Python; kind and str(what) name it."""
    cdef int64_t ns = now_ns() - began_ns
    if ns > spans.longest_ns:
        name(kind, what, ns)


cdef int64_t now_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t> now.tv_sec * 1000000000 + now.tv_nsec


cdef inline Handles **handles_of(void *handle) noexcept nogil:
    """The first member of each handle, `data`, belongs to its user."""
    return <Handles **> handle


# ---------------------------------------------------------------------- in the loop, without the GIL

cdef void on_check(void *handle) noexcept nogil:
    """Behind the wait for events, and their handlers."""
    cdef Handles *handles = handles_of(handle)[0]
    handles.began_ns = <int64_t> uv_now(handles.loop) * NS_PER_MS


cdef void on_prepare(void *handle) noexcept nogil:
    """Right before the wait."""
    cdef Handles *handles = handles_of(handle)[0]
    cdef int64_t ns
    if handles.limit_ns == 0:
        return
    ns = now_ns() - handles.began_ns
    if handles.began_ns and ns > handles.limit_ns:
        told(handles, ns)
    handles.began_ns = 0
    spans.longest_ns = handles.limit_ns / WORTH
    spans.named = False


cdef void told(Handles *handles, int64_t ns) noexcept with gil:
    if handles.watch is not NULL:
        (<Watch> handles.watch)._tell(ns)


cdef void on_closed(void *handle) noexcept nogil:
    cdef Handles *handles = handles_of(handle)[0]
    handles.open -= 1
    if handles.open == 0:
        free(handles.prepare)
        free(handles.check)
        free(handles)


# ---------------------------------------------------------------------- from outside

cdef void *symbol(void *library, const char *c_name) except NULL:
    cdef void *found = dlsym(library, c_name)
    if found is NULL:
        raise OSError(f"uvloop has no {c_name.decode()}")
    return found


cdef int find_symbols() except -1:
    """Raises OSError where uvloop's own libuv does not show its functions."""
    global uv_handle_size, uv_prepare_init, uv_prepare_start, uv_check_init, uv_check_start, uv_unref, uv_close
    global uv_now
    cdef bytes path = uvloop.loop.__file__.encode()
    cdef void *library = dlopen(path, RTLD_LAZY)     # it is loaded: this counts one more user, for good
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
    return 0


@cython.final
cdef class Watch:
    """Watches one loop until close(). A process has one at a time."""

    def __init__(self, loop, int64_t limit_ns, report):
        """Calls report(nanoseconds, nanoseconds of the longest handler, its name) for each iteration that takes longer
        than limit_ns. The name is empty if no handler took a quarter of that. Raises OSError.
        """
        cdef Handles *handles
        find_symbols()
        handles = <Handles *> calloc(1, sizeof(Handles))
        if handles is NULL:
            raise MemoryError
        handles.loop = PyCapsule_GetPointer(uvloop.loop.libuv_get_loop_t_ptr(loop), NULL)
        handles.prepare = calloc(1, uv_handle_size(UV_PREPARE))
        handles.check = calloc(1, uv_handle_size(UV_CHECK))
        if handles.prepare is NULL or handles.check is NULL:
            free(handles.prepare)
            free(handles.check)
            free(handles)
            raise MemoryError
        uv_prepare_init(handles.loop, handles.prepare)
        uv_check_init(handles.loop, handles.check)
        handles.open = 2
        handles_of(handles.prepare)[0] = handles
        handles_of(handles.check)[0] = handles
        uv_prepare_start(handles.prepare, on_prepare)
        uv_check_start(handles.check, on_check)
        # They do not keep the loop running.
        uv_unref(handles.prepare)
        uv_unref(handles.check)
        handles.watch = <void *> self
        self.handles = handles
        self.report = report
        self._set_limit(limit_ns)

    def set_limit(self, int64_t limit_ns):
        """As for the constructor."""
        self._set_limit(limit_ns)

    cdef void _set_limit(self, int64_t limit_ns) noexcept:
        if self.handles is not NULL:
            self.handles.limit_ns = limit_ns
            self.handles.began_ns = 0       # the present iteration is not reported
            spans.longest_ns = limit_ns / WORTH
            spans.named = False

    def close(self):
        """Watches no more. Must be called before the loop is closed, which would take the handles for its own."""
        cdef Handles *handles = self.handles
        if handles is NULL:
            return
        handles.limit_ns = 0
        spans.longest_ns = INT64_MAX
        self.handles = NULL
        handles.watch = NULL
        uv_close(handles.prepare, on_closed)
        uv_close(handles.check, on_closed)

    def __dealloc__(self):
        # The loop may still call back.
        if self.handles is not NULL:
            self.handles.watch = NULL

    def _tell(self, int64_t ns):
        try:
            self.report(ns, spans.longest_ns if spans.named else 0, longest if spans.named else "")
        except Exception:
            # An error of the log must not end the loop.
            return
