# The manifest of a log: one small file, replaced as a whole. It has the facts that are lost with a lost segment.

from libc.stdint cimport int64_t, uint64_t

from nsqc.store.log.segmenthead cimport HeadCheck


cdef struct Manifest:           # 8 bytes each, in the order of the file
    uint64_t log_id
    int64_t newest              # sequence of the newest segment that may hold acknowledged records; 0: none yet
    int64_t newest_first        # its first offset
    uint64_t newest_salt
    int64_t reserved            # offsets below this one may have been used
    int64_t resume              # the next record goes to this offset or later
    # Where the newest segment ends, if its file has this size: found by a stop or a start. 0: it was written to since,
    # and ends there or later; or unknown.
    int64_t end_size
    int64_t end_position, end   # of its frames; the offset after its last record
    int64_t end_due_ns          # the latest due time of its delayed records; 0: it has none
    int64_t end_time_ns         # the latest publish time up to there

# HEAD_SOUND, HEAD_DAMAGED or HEAD_UNKNOWN; or -errno, -ENOENT among them.
cdef int manifest_read(const char *c_folder, Manifest *manifest) noexcept nogil
# The same for bytes in memory.
cdef HeadCheck manifest_load(const char *c_data, int64_t length, Manifest *manifest) noexcept nogil
# 0 or errno. Syncs the new file before it replaces the old one, so that a power failure cannot lose both; the name is
# durable after the folder is synced.
cdef int manifest_write(const char *c_folder, const Manifest *manifest) noexcept nogil
