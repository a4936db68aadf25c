"""Reports broken invariants of the store in the debug build."""

ENABLED = bool(CHECKS)


cdef void broken(const char *c_text) noexcept nogil:
    with gil:
        raise_broken(c_text)


cdef void raise_broken(const char *c_text) noexcept:
    raise AssertionError(c_text.decode())
