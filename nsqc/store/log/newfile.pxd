# Files of a log that appear whole or not at all: written under a temporary name, then renamed. A folder that has either
# name is kept as NAME.bad, or publishing would fail as long as it is there; anything else gives way.

cdef int newfile_open(const char *c_temporary) noexcept nogil       # a descriptor to write to, or -errno
cdef int newfile_place(const char *c_temporary, const char *c_path) noexcept nogil      # 0 or errno
