# Files of a journal, cursors.NNNNNN in the folder of a log: see docs/ondisk.md. No Python, except for read_journal().
#
# A file is a chain of frames as segments have them (frame.pxd), with the file's number as salt. It begins with the
# whole state, in frames of which all but the last are marked with MORE, and continues with operations. Frames are
# numbered over all files, and each is applied once, wherever it is found: so files may overlap, and a frame may be
# there twice.
#
# In the head of a frame, `id` is its number, `time_ns` that of the state that its file begins with, and `first` its
# place in the file.
#
# A large file is replaced by one that begins with its state: that is written under a temporary name, gets a copy of the
# frames appended to the old one meanwhile, and is renamed. The old one is removed once the new one is durable. A kill
# at any moment leaves files that say the same.

from libc.stdint cimport int64_t

from nsqc.store.log.buffer cimport Buffer
from nsqc.store.log.frame cimport FRAME_HEAD, RECORD_SIZE
from nsqc.store.log.journal cimport JournalState

cdef enum:
    OPS_AT = FRAME_HEAD + RECORD_SIZE   # where the operations of a frame lie

cdef struct JournalFile:        # that frames are appended to
    int fd                      # -1: closed
    int64_t number              # in its name
    int64_t begins              # number of its state
    int64_t position            # where the next frame goes
    int64_t frames              # in it so far

cdef struct FoundFile:
    int64_t number
    bint damaged                # part of it cannot be used

cdef struct FoundFiles:
    FoundFile *items            # owned; by number
    int64_t count, room
    JournalFile last            # the newest that frames were found in, or a new one; closed
    int64_t state_bytes         # of the state that it begins with
    int64_t torn_bytes          # at the end of files, as a kill leaves them


cdef void journal_path(char *c_path, const char *c_folder, int64_t number) noexcept nogil   # room for PATH_BYTES
cdef void journal_new_path(char *c_path, const char *c_folder) noexcept nogil
cdef int64_t journal_number(const char *c_name) noexcept nogil      # of a file of this name; 0: it is not a journal's
cdef int files_add(FoundFiles *files, int64_t number) noexcept nogil        # 0 or ENOMEM
cdef void files_free(FoundFiles *files) noexcept nogil
# Loads what they say into an empty state: of the file of a number, which is being appended to, up to `limit` bytes. 0
# or errno.
cdef int files_load(FoundFiles *files, JournalState *state, const char *c_folder, int64_t number,
                    int64_t limit) noexcept nogil
cdef int64_t files_free_number(const FoundFiles *files, int64_t number) noexcept nogil      # that, or the next one

# Appends a frame of operations, which begin at OPS_AT; FRAME_ALIGN bytes of room follow them. A flag: MORE. 0 or errno,
# and nothing was appended.
cdef int journal_append(JournalFile *file, char *c_frame, int64_t ops_end, int64_t id, int flags) noexcept nogil
# Appends the whole state, and all frames that lie between two positions of another file; `at` moves.
cdef int journal_write_state(JournalFile *file, const JournalState *state) noexcept nogil
cdef int journal_copy(JournalFile *file, const char *c_folder, int64_t number, int64_t *at,
                      int64_t limit) noexcept nogil
