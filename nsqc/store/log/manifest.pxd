# The manifest of a log: one small file, replaced as a whole. It says what the segments cannot say if they are lost.

from libc.stdint cimport int64_t, uint64_t


cdef struct Manifest:
    uint64_t log_id
    int64_t newest              # sequence of the newest segment that may hold acknowledged records; 0: none was made
    int64_t reserved            # offsets below this one may have been used
    # Where the newest segment ends, if its file has this size: a stop or a start has found that out. 0: unknown.
    int64_t end_position, end, end_size
    # That of all segments when that was found out.
    int64_t end_synced

# HEAD_SOUND, HEAD_DAMAGED or HEAD_UNKNOWN; or -errno, -ENOENT among them.
cdef int manifest_read(const char *c_folder, Manifest *manifest) noexcept nogil
# 0 or errno. syncs: its bytes are durable; its name is when the folder is synced.
cdef int manifest_write(const char *c_folder, const Manifest *manifest, bint syncs) noexcept nogil
