# Snapshots and journals of a log topic, read from their folder: see docs/ondisk.md.

from libc.stdint cimport int64_t
from nsqc.store.log.journal cimport LogState
from nsqc.store.log.listing cimport Listing

# Replays the files of a folder, or what is before the journal of a number (upto; 0: everything). The state need not be
# initialized, and is to be freed in any case. 0 or errno. A folder without any of these files is an empty state.
cdef int state_replay(LogState *state, const char *c_folder, Listing *listing, int64_t upto) noexcept nogil
