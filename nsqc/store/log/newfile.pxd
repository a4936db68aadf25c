# Creates files of a log atomically: written under a temporary name, then renamed. A folder with either name is kept as
# NAME.bad, since it would block publishing; anything else is replaced.

from libc.stdint cimport int64_t

cdef int newfile_open(const char *c_temporary) noexcept nogil       # a descriptor to write to, or -errno
cdef int newfile_place(const char *c_temporary, const char *c_path) noexcept nogil      # 0 or errno
# Writes a whole file; its descriptor or -errno. syncs: its bytes are durable before it gets its name.
cdef int newfile_make(const char *c_temporary, const char *c_path, const char *c_data, int64_t length,
                      bint syncs) noexcept nogil
