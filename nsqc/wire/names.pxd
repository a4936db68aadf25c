# The rule for topic and channel names, on raw bytes.

# True for 1 to 64 of . a-z A-Z 0-9 _ - with an optional "#ephemeral" behind at least one of them.
cdef bint name_is_valid(const char *c_name, Py_ssize_t length) noexcept nogil
cdef bint name_is_ephemeral(const char *c_name, Py_ssize_t length) noexcept nogil
