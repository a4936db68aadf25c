# Snapshots and journals of a log topic, read from their folder: see docs/ondisk.md.

from libc.stdint cimport int64_t
from nsqc.store.log.journal cimport LogState

cdef enum:
    JOURNAL = 1
    SNAPSHOT = 2
    TEMPORARY = 3               # a snapshot whose writing was interrupted
    MOST_NUMBER = 2147483647    # of a journal

cdef struct CursorFile:
    int kind
    int64_t number
    bint damaged                # found when it was read

cdef struct Listing:
    CursorFile *files           # owned; by number, a snapshot before the journal
    int64_t count, room


# Replays a folder, or what is before the journal of a number (upto; 0: everything). The state need not be initialized,
# and is to be freed in any case. 0 or errno. A folder without any of these files is an empty state.
cdef int state_load(LogState *state, const char *c_folder, int64_t upto) noexcept nogil

# The two steps of it. The listing need not be initialized, and is to be freed in any case.
cdef int listing_read(Listing *listing, const char *c_folder) noexcept nogil
cdef int state_replay(LogState *state, const char *c_folder, Listing *listing, int64_t upto) noexcept nogil
cdef void listing_free(Listing *listing) noexcept nogil
# c_path: room for PATH_BYTES.
cdef void cursor_path(char *c_path, const char *c_folder, CursorFile *file) noexcept nogil
