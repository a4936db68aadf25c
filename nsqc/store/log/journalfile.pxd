# Files of a journal, cursors.NNNNNN in the folder of a log: docs/ondisk.md has the format. No Python.

from libc.stdint cimport int64_t

from nsqc.store.log.buffer cimport Buffer
from nsqc.store.log.frame cimport FRAME_HEAD, RECORD_SIZE
from nsqc.store.log.journal cimport JournalState

cdef enum:
    OPS_AT = FRAME_HEAD + RECORD_SIZE   # where in a frame the operations lie

cdef struct JournalFile:        # the file that frames are appended to
    int fd                      # -1: closed
    int64_t number              # in its name
    int64_t begins              # number of the state that it begins with; 0: none
    int64_t position            # where the next frame goes

cdef struct FoundFile:
    int64_t number
    bint damaged                # part of it is unusable

cdef struct FoundFiles:
    FoundFile *items            # owned; by number
    int64_t count, room
    JournalFile last            # the newest one with frames, or a new one; closed
    int64_t state_bytes         # bytes of the newest state that a file begins with
    int64_t torn_bytes          # at the end of files, as after a kill


cdef void journal_path(char *c_path, const char *c_folder, int64_t number) noexcept nogil   # room for PATH_BYTES
cdef void journal_new_path(char *c_path, const char *c_folder) noexcept nogil
cdef int64_t journal_number(const char *c_name) noexcept nogil      # from a file name; 0: not a journal's
cdef int files_add(FoundFiles *files, int64_t number) noexcept nogil        # 0 or ENOMEM
cdef void files_free(FoundFiles *files) noexcept nogil
cdef int files_load(FoundFiles *files, JournalState *state, const char *c_folder) noexcept nogil    # 0 or errno
cdef int64_t files_free_number(const FoundFiles *files, int64_t number) noexcept nogil      # the first from there on

# Appends a frame of operations, which begin at OPS_AT; FRAME_ALIGN bytes of room follow them. A flag: MORE. 0, or errno
# and nothing was appended.
cdef int journal_append(JournalFile *file, char *c_frame, int64_t ops_end, int64_t id, int flags) noexcept nogil
cdef int journal_write_state(JournalFile *file, const JournalState *state) noexcept nogil      # 0 or errno
