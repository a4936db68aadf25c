# What threads of an IoPool do with the journal of a log: append to it, and replace it by a smaller file.
#
# A compaction has three steps: run_compact() writes the state to a new file, which is synced; the next run_journal()
# copies the last frames of the old one to it, and gives it its name; run_clean() syncs it, and removes the old files.

from libc.stdint cimport int64_t
from nsqc.store.disk.pool cimport Job
from nsqc.store.log.journalfile cimport FoundFiles, JournalFile

cdef struct Compaction:
    Job job
    const char *c_folder        # borrowed
    FoundFiles files            # owned: those that are replaced
    int64_t number              # of the one that is being appended to
    int64_t copied              # the new one has its frames before this position
    JournalFile file            # the new one
    int64_t state_bytes         # of its state
    int error                   # errno; then there is no new one, or the old ones may still be there

cdef struct JournalJob:
    Job job
    const char *c_folder        # borrowed
    JournalFile file
    Compaction *compaction      # borrowed: its file takes the place of this one; NULL: none
    char *c_data                # owned: a frame of operations, up to ops_end; 0: there are none
    int64_t ops_end, room, id
    int copies                  # of the frame
    bint waits                  # the file was opened and counts as waits_open()
    bint makes_folder
    int error


cdef void run_journal(Job *c_job) noexcept nogil        # of a JournalJob
cdef void run_compact(Job *c_job) noexcept nogil        # of a Compaction
cdef void run_clean(Job *c_job) noexcept nogil
cdef void compaction_undo(Compaction *job) noexcept nogil       # the new file does not take its place
cdef void compaction_free(Compaction *job) noexcept nogil
