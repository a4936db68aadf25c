# Files of a log that appear whole or not at all: written under a temporary name, then renamed. A folder that has either
# name is kept as NAME.bad, or publishing would fail as long as it is there; anything else gives way.

from libc.stdint cimport int64_t

cdef int newfile_open(const char *c_temporary) noexcept nogil       # a descriptor to write to, or -errno
cdef int newfile_place(const char *c_temporary, const char *c_path) noexcept nogil      # 0 or errno
# Writes a file whole; its descriptor or -errno. syncs: its bytes are durable before it has its name.
cdef int newfile_make(const char *c_temporary, const char *c_path, const char *c_data, int64_t length,
                      bint syncs) noexcept nogil
