# Segments of a log: files, header, manifest, sparse index, the list of them, publish ids, sealing, appends.

from libc.stdint cimport int64_t, uint32_t, uint64_t

from nsqc.store.disk.fileio cimport Job
from nsqc.store.log.frame cimport Buffer, Frame


# ====================================================================== header
# The header of a segment, and its file. The first block of the file has two copies in separate sectors: a segment
# that loses its header loses its salt, and with it all its frames. docs/ondisk.md has the format.

cdef enum:
    FRAMES_AT = 4096            # where the first frame begins
    SEGMENT_VERSION = 2
    HEAD_ROOM = 128             # of one copy
    COPY_AT = 2048              # of the second
    REMOTE = 1                  # a flag: the frames are in the bucket only, and the file has the header alone

cdef enum HeadCheck:
    HEAD_SOUND
    HEAD_DAMAGED
    HEAD_UNKNOWN                # unknown version or flag


cdef struct Segment:
    # The header: 8 bytes each, in the order of the file.
    uint64_t log_id
    int64_t sequence
    int64_t first               # offset of its first record
    uint64_t salt
    int64_t made_ns
    uint64_t before_salt        # 0: no segment before it
    int64_t before_position, before_end
    int64_t before_records      # in all earlier segments, removed ones included
    int64_t before_due_ns
    int64_t before_time_ns
    int64_t durable_from
    # The rest is known from its successor's header, the manifest or a scan, or as it is written.
    int64_t position, end       # where its frames end; the offset after its last record
    int64_t due_ns              # the latest due time of its delayed records; 0: it has none
    int64_t time_ns             # the latest publish time in it and all segments before it
    int64_t lost                # records of segments missing right before it; 0 once those were removed
    bint remote                 # its frames are in the bucket only
    # Only after a start.
    int64_t size                # of its file
    int64_t synced              # durable up to here, as a scan found
    int64_t damaged             # records before its end that a scan found lost

cdef enum:
    SEGMENT_NUMBERS = 96        # bytes of those in the header


# Begins a segment after another one, at an offset; `last` without a sequence: there is none.
cdef void segment_follow(Segment *segment, const Segment *last, int64_t first) noexcept nogil
# The segment ends where its successor says, if it is that; whether it is.
cdef bint segment_ends_at(Segment *segment, const Segment *next_) noexcept nogil
# Records in lost segments before the first one: it was begun because others were gone.
cdef inline int64_t lost_before(const Segment *segment) noexcept nogil:
    return 0 if segment.before_salt else segment.before_records

# Of one copy. Numbers that no segment has are damage, as a wrong checksum is: the file may come from anyone.
cdef HeadCheck head_load(const char *c_copy, Segment *segment) noexcept nogil
# Reads the header of an open file; HeadCheck, or -errno.
cdef int head_read(int fd, Segment *segment) noexcept nogil
# Creates the file with its header under a temporary name and renames it; returns its descriptor or -errno. syncs: the
# file is durable; its name is after the folder is synced.
cdef int segment_make(const char *c_folder, const Segment *segment, bint syncs) noexcept nogil
cdef void segment_path(char *c_path, const char *c_folder, int64_t first) noexcept nogil    # room for PATH_BYTES
# The file with the frames; of a remote segment it exists while they are fetched.
cdef void frames_path(char *c_path, const char *c_folder, int64_t first, bint remote) noexcept nogil


# ====================================================================== manifest
# The manifest of a log: one small file, replaced as a whole. It has the facts that are lost with a lost segment.

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
    uint64_t[2] id_key          # of the hashes of publish ids; 0: none are remembered

# Records where the newest segment ends, whose file has this size.
cdef inline void manifest_end(Manifest *manifest, const Segment *last, int64_t size) noexcept nogil:
    manifest.end_size = size
    manifest.end_position = last.position
    manifest.end = last.end
    manifest.end_due_ns = last.due_ns
    manifest.end_time_ns = last.time_ns

# HEAD_SOUND, HEAD_DAMAGED or HEAD_UNKNOWN; or -errno, -ENOENT among them.
cdef int manifest_read(const char *c_folder, Manifest *manifest) noexcept nogil
# The same for bytes in memory.
cdef HeadCheck manifest_load(const char *c_data, int64_t length, Manifest *manifest) noexcept nogil
# 0 or errno. syncs: the new file before it replaces the old one, so that a power failure cannot lose both; the name is
# durable after the folder is synced.
cdef int manifest_write(const char *c_folder, const Manifest *manifest, bint syncs) noexcept nogil
cdef bytes manifest_bytes(const Manifest *manifest)


# ====================================================================== index
# The sparse index of a segment: where a walk to an offset or a time begins. In memory for the segment being written;
# after the frames of a sealed one. It is only a hint: a walk begins at the first frame if the index does not point to
# another one.

cdef enum:
    INDEX_STEP = 65536          # bytes of frames per entry


cdef struct IndexEntry:         # 8 bytes each, in the order of the file
    int64_t first               # offset of a frame's first record
    int64_t position            # of the frame
    int64_t time_ns             # the latest of this frame and all earlier ones

cdef struct Index:
    IndexEntry *items           # owned
    int64_t count, room
    int64_t next_at             # the first frame at or after this position gets the next entry
    int64_t time_ns             # the latest so far
    bint has_ids                # frames have publish ids, or may have

cdef void index_note(Index *index, const Frame *frame, int64_t position) noexcept nogil     # frames in order
cdef void index_free(Index *index) noexcept nogil
# The last entry at or before an offset; NULL: none.
cdef const IndexEntry *index_find(const Index *index, int64_t offset) noexcept nogil
# Reads the index at the end of a file, after the frames; 0 or errno. ENODATA: no index, or that of another segment.
cdef int index_read(Index *index, int fd, uint64_t salt) noexcept nogil
# Where in a sealed segment a walk to an offset, or a publish time (offset below 0), begins: at a frame.
cdef int64_t index_position(int fd, uint64_t salt, int64_t offset, int64_t time_ns) noexcept nogil


# ====================================================================== segments
# The segments of a log in memory, oldest first.

cdef struct Segments:
    Segment *items          # owned; NULL while there are none
    int64_t count, room
    int64_t bytes           # of all frames
    int64_t missing         # records of segments that are gone but were not removed
    int64_t dropped         # removed segments; also the number of the first existing one, which never changes

cdef int segments_reserve(Segments *segments, int64_t count) noexcept nogil     # room for `count` more; -1: no memory
# Appends a segment, or replaces the last one if that is empty and begins at the same offset: they have the same file.
# The first one with its `lost`. There must be room.
cdef void segments_add(Segments *segments, const Segment *segment) noexcept nogil
cdef void segments_drop(Segments *segments, int64_t count) noexcept nogil       # the oldest ones
# Number of oldest segments that can go; see TopicLog.retain(). The last one stays: it is appended to. now_ns, since_ns:
# Clock.wall and Clock.since.
cdef int64_t segments_surplus(Segments *segments, int64_t needed, int64_t retain_ns, int64_t retain_bytes, bint drops,
                              int64_t now_ns, int64_t since_ns) noexcept nogil
cdef void segments_free(Segments *segments) noexcept nogil
# The last segment that begins at or before an offset; -1: none does.
cdef int64_t segments_find(Segments *segments, int64_t offset) noexcept nogil
# The first segment whose publish times reach time_ns, or the count.
cdef int64_t segments_at_time(Segments *segments, int64_t time_ns) noexcept nogil
# Number of records before an offset, as far as segments know: subtract two ranks to count the records between.
cdef int64_t segments_rank(Segments *segments, int64_t offset) noexcept nogil

cdef object segment_tuple(const Segment *segment)       # a nsqc.store.log.names.Segment

cdef inline Segment *segments_last(Segments *segments) noexcept nogil:      # NULL: there is none
    return &segments.items[segments.count - 1] if segments.count else NULL


# ====================================================================== publish ids
# Publish ids are in the frames of their last records. When a segment is sealed, its ids are summarised in a file beside
# it, ids.FIRST, which outlives it: so a start knows all ids without reading sealed segments, even removed ones.

cdef struct Summary:            # 8 bytes each, in the order of the file
    uint64_t log_id
    uint64_t[2] key             # of the hashes
    int64_t end                 # of the segment: the offset after its last record
    int64_t time_ns             # no id is newer
    int64_t count               # ids
    int64_t check               # checksum of the ids

cdef enum:
    ID_ENTRY = 24               # bytes of an id, in publishing order: HASH_BYTES, and the time of its publish (8)

# Adds the ids in a segment; 0 or errno.
cdef int ids_collect(const char *c_folder, const Segment *segment, Buffer *ids) noexcept nogil
# Reads a summary, and its ids unless `ids` is NULL, else empty. 0 or errno; ENODATA: damaged.
cdef int summary_read(const char *c_folder, int64_t first, Summary *summary, Buffer *ids) noexcept nogil


# ====================================================================== seal
# Appends the index of a finished segment to its file, and summarises its ids, on a thread. If that fails, readers walk
# further, and a start reads the segment.

cdef struct SealJob:
    Job job
    const char *c_folder    # borrowed
    Segment segment
    Index index             # owned
    bint summarises         # its ids
    Summary summary         # the result: count 0: there is none

# Cuts off what follows the frames in the newest segment's file: zeros for more, or a failed append. 0 or errno.
cdef int segment_trim(const char *c_folder, const Segment *segment) noexcept nogil
cdef void run_seal(Job *c_job) noexcept nogil       # of a SealJob
cdef void seal_free(SealJob *job) noexcept nogil


# ====================================================================== append
# Appends to a log on a thread of an IoPool: writes frames, begins segments and makes acknowledged records durable.
# After a failed append nothing of it counts, and the next one begins a segment: no position is written twice.

cdef struct AppendJob:
    Job job
    const char *c_folder        # of the log; borrowed
    Buffer out                  # frames that are not sealed; owned
    int64_t offset              # of the first record
    int64_t records
    Segment last                # the segment that is appended to; sequence 0: none yet
    int64_t lost                # messages that were lost after it
    bint fresh                  # the frames begin a new segment
    int64_t synced              # position up to which that segment is durable
    int64_t ready               # position up to which its file is filled with zeros
    int64_t durable_from        # sequence of the first segment that is not durable without this append; 0: all are
    int64_t wall_ns
    int64_t max_file            # bytes of frames after which a segment ends; a batch is never divided
    bint makes_folder           # the log's folder does not exist yet
    Manifest manifest           # as last written; the job keeps it current
    bint renews                 # write it in any case
    bint syncs                  # everything is durable when the job is done
    bint syncs_parent           # the folder's own name may not be durable
    bint syncs_names            # nor may names in the folder
    int64_t names               # Recorder.names when the job began
    int64_t *earlier            # owned: first offsets of segments that may not be durable, and are synced first
    int64_t earlier_count
    bint rewrites               # a sync of them may have failed: write them again first
    int fd                      # of the last segment; -1: closed
    # The result.
    int error                   # then nothing was added
    bint earlier_failed         # the sync of `earlier` failed
    bint made_names             # the folder has names that it has not synced
    bint synced_names           # all earlier names are durable, the folder's own included
    Segments written            # owned: `last`, and the segments that the append began, as they are now


# Number of offsets reserved at once; see Manifest.reserved.
cdef extern from *:
    """
    #define NSQC_RESERVE (1LL << 40)
    """
    const int64_t RESERVE "NSQC_RESERVE"

cdef void run_append(Job *c_job) noexcept nogil             # of an AppendJob
cdef void append_close(AppendJob *job) noexcept nogil       # its file
cdef void append_free(AppendJob *job) noexcept nogil
