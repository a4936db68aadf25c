# What the threads of an IoPool do for a log: append records with their index, and frames to the journal. reads.pxd has
# the reads. See format.pxd and docs/ondisk.md for what is in the files.

from libc.stdint cimport int64_t, uint32_t, uint64_t
from nsqc.store.disk.pool cimport Job

cdef enum:
    PATH_BYTES = 4500
    MORE_MARK = 1           # in place of a record's attempts, until it is written: its batch continues


cdef struct LogBuf:
    char *c_data            # owned; NULL: none
    int64_t length, room    # bytes
    int64_t records

cdef struct Piece:          # a segment after an append
    int64_t first           # offset of its first record
    int64_t records         # in it
    int64_t bytes           # of them
    int64_t due_bytes       # of its due times
    int64_t base_ns         # of its index
    uint32_t time           # of its last index entry


cdef struct AppendJob:
    Job job
    const char *c_folder    # of the log; borrowed
    LogBuf out              # records; owned
    LogBuf due              # due times of some of them, in order; owned
    int64_t offset          # of the first record
    Piece last              # the segment appended to
    bint fresh              # it does not exist yet, and begins with the first record
    bint makes_folder       # nor does the folder
    bint syncs_parent       # the folder's name may not be on disk
    bint syncs_names        # nor names in the folder: what is acknowledged as synced needs both
    int64_t names           # Recorder.names as the job began
    uint64_t id             # of the log, for its folder
    int64_t least_ns        # what the index of a fresh segment may begin with at the earliest
    bint syncs              # everything is on disk when the job is done
    int64_t *behind         # owned: first offsets of segments that may not be on disk yet, and are synced first
    int64_t behind_count
    bint rewrites           # a sync of them may have failed: they are written again before
    int64_t left_end        # segments of refused writes may be left, up to this offset; they are removed first
    bint puts_off           # the index entries are left to run_entries(); only if it syncs nothing and nothing is fresh
    int64_t unsynced        # segments at the end that are not on disk when the next one begins
    int64_t max_file        # bytes after which a segment ends; a batch is never divided
    int dat, idx            # descriptors of the segment, -1: to be opened. After the job: of the last one, if open
    bint opens              # the job opens them: it may have to close them, too
    bint waits              # they count as waits_open()
    # The result.
    int error               # then nothing was added
    bint behind_failed      # because of a sync of what is behind
    bint spoilt             # and the files may still contain what was refused: the segment must end here
    bint leaves             # a segment that it began may still be there, or come back after a power failure
    bint made_names         # there are names in the folder that it has not synced
    bint synced_names       # all names of before are on disk, the folder's own included
    Piece *pieces           # owned: segments written to, the first being the one appended to
    int64_t count, room
    char *c_entries         # owned: those that were put off; NULL: none
    int64_t entries_length, entries_at  # bytes, and where in the index


cdef struct JournalJob:
    Job job
    const char *c_folder
    int64_t number, at      # which file, and where in it
    char *c_data            # owned: a frame
    int64_t length
    int fd                  # -1: to be opened; afterwards the descriptor, -1 if it was closed
    bint waits              # it was opened and counts as waits_open()
    bint makes_folder
    uint64_t id             # as above
    int error


cdef void run_append(Job *c_job) noexcept nogil         # of an AppendJob
cdef int run_entries(AppendJob *job) noexcept nogil     # writes what was put off; 0 or errno: then nothing was added
cdef void run_journal(Job *c_job) noexcept nogil        # of a JournalJob
cdef int buf_room(LogBuf *buf, int64_t need) noexcept nogil     # room for need more bytes; -1: no memory
cdef void buf_free(LogBuf *buf) noexcept nogil
# c_path: room for PATH_BYTES. c_kind: dat, idx or due.
cdef void segment_path(char *c_path, const char *c_folder, int64_t first, const char *c_kind) noexcept nogil
