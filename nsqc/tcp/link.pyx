"""A connection, from the view of its parts. See the .pxd."""

from nsqc.store.seams cimport LoopWork


cdef class Link(LoopWork):
    """Abstract base of Connection."""

    cdef Py_ssize_t consume(self, const char *c_from, Py_ssize_t length) except -1:
        raise NotImplementedError

    cdef void after_input(self) noexcept:
        pass

    cdef int refuse_stream(self, bytes error) except -1:
        raise NotImplementedError

    cdef void input_ended(self) noexcept:
        pass

    cdef void resume(self) noexcept:
        pass

    cdef int heartbeats_agreed(self, bint first) except -1:
        raise NotImplementedError

    cdef void say_ok(self) noexcept:
        pass

    cdef void upgraded(self) noexcept:
        pass

    cdef void end(self) noexcept:
        pass

    cdef void fail(self, error) noexcept:
        pass

    cdef void lost(self, error) noexcept:
        pass
