# The header of a segment, and its file. The first block of the file has two copies in separate sectors: a segment
# that loses its header loses its salt, and with it all its frames. docs/ondisk.md has the format.

from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef enum:
    FRAMES_AT = 4096            # where the first frame begins
    SEGMENT_VERSION = 2
    HEAD_ROOM = 128             # of one copy
    COPY_AT = 2048              # of the second

cdef enum HeadCheck:
    HEAD_SOUND
    HEAD_DAMAGED
    HEAD_UNKNOWN                # unknown version or flag


cdef struct SegmentHead:        # 8 bytes each, in the order of the file
    uint64_t log_id
    int64_t sequence
    int64_t first
    uint64_t salt
    int64_t made_ns
    uint64_t before_salt        # 0: no segment before it
    int64_t before_position, before_end
    int64_t before_records
    int64_t before_due_ns
    int64_t before_time_ns
    int64_t durable_from


# HEAD_ROOM bytes with magic, version, numbers of 8 bytes each, and checksum: headers of segments and the manifest.
cdef void numbers_store(char *c_to, const char *c_magic, const void *numbers, int bytes) noexcept nogil
cdef HeadCheck numbers_load(const char *c_from, const char *c_magic, void *numbers, int bytes) noexcept nogil

# Records in lost segments before the first one: it was begun because others were gone.
cdef inline int64_t lost_before(const SegmentHead *head) noexcept nogil:
    return 0 if head.before_salt else head.before_records

# Of one copy. Numbers that no segment has are damage, as a wrong checksum is: the file may come from anyone.
cdef HeadCheck head_load(const char *c_copy, SegmentHead *head) noexcept nogil
# Reads the header of an open file; HeadCheck, or -errno.
cdef int head_read(int fd, SegmentHead *head) noexcept nogil
# Creates the file with its header under a temporary name and renames it; returns its descriptor or -errno. syncs: the
# file is durable; its name is after the folder is synced.
cdef int segment_make(const char *c_folder, const SegmentHead *head, bint syncs) noexcept nogil
cdef void segment_path(char *c_path, const char *c_folder, int64_t first) noexcept nogil    # room for PATH_BYTES
