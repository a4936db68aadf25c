# Appends to a log on a thread of an IoPool: writes frames, begins segments and makes acknowledged records durable.
# After a failed append nothing of it counts, and the next one begins a segment: no position is written twice.

from libc.stdint cimport int64_t, uint64_t

from nsqc.store.disk.pool cimport Job
from nsqc.store.log.buffer cimport Buffer
from nsqc.store.log.idjournal cimport IdWrite
from nsqc.store.log.manifest cimport Manifest
from nsqc.store.log.segmenthead cimport SegmentHead


cdef struct Piece:              # a segment after an append
    SegmentHead head
    int64_t position            # where its frames end
    int64_t end                 # the offset after its last record
    int64_t due_ns              # the latest due time of its delayed records; 0: it has none
    int64_t time_ns             # the latest publish time in it and all segments before it
    int64_t out_begin, out_end  # bytes of AppendJob.out that belong to it
    bint fresh                  # this append began it


cdef struct AppendJob:
    Job job
    const char *c_folder        # of the log; borrowed
    Buffer out                  # frames that are not sealed; owned
    IdWrite ids                 # of the publishes; owned
    int64_t offset              # of the first record
    int64_t records
    Piece last                  # the segment that is appended to; sequence 0: none yet
    bint fresh                  # the frames begin a new segment
    int64_t synced              # position up to which that segment is durable
    int64_t ready               # position up to which its file is filled with zeros
    int64_t durable_from        # sequence of the first segment that is not durable without this append; 0: all are
    int64_t wall_ns
    int64_t max_file            # bytes of frames after which a segment ends; a batch is never divided
    bint makes_folder           # the log's folder does not exist yet
    Manifest manifest           # as last written; the job keeps it current
    bint syncs                  # everything is durable when the job is done
    bint syncs_parent           # the folder's own name may not be durable
    bint syncs_names            # nor may names in the folder
    int64_t names               # Recorder.names when the job began
    int64_t *earlier            # owned: first offsets of segments that may not be durable, and are synced first
    int64_t earlier_count
    bint rewrites               # a sync of them may have failed: copy them first
    int fd                      # of the last segment; -1: closed
    # The result.
    int error                   # then nothing was added
    bint earlier_failed         # the sync of `earlier` failed
    bint made_names             # the folder has names that it has not synced
    bint synced_names           # all earlier names are durable, the folder's own included
    Piece *pieces               # owned: segments written to, in order
    int64_t count, room


# Number of offsets reserved at once; see Manifest.reserved.
cdef extern from *:
    """
    #define NSQC_RESERVE (1LL << 40)
    """
    const int64_t RESERVE "NSQC_RESERVE"


cdef void run_append(Job *c_job) noexcept nogil         # of an AppendJob
cdef void append_free(AppendJob *job) noexcept nogil
cdef void append_close(AppendJob *job) noexcept nogil   # its file
