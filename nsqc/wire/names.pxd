# The rules for topic and channel names, as bytes.

# 1 to 64 of . a-z A-Z 0-9 _ -; "#ephemeral" may follow, and counts.
cdef bint name_is_valid(const char *c_name, Py_ssize_t length) noexcept nogil
cdef bint name_is_ephemeral(const char *c_name, Py_ssize_t length) noexcept nogil
