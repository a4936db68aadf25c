# The journal of an earlier run, until the channels have restored their state from it.

from libc.stdint cimport int64_t
from nsqc.store.log.cursor cimport Cursor
from nsqc.store.log.journal cimport JournalState
from nsqc.store.log.journalfile cimport FoundFiles
from nsqc.store.log.recorder cimport Journaled
from nsqc.store.log.topiclog cimport TopicLog
from nsqc.store.seams cimport StoreOwner


cdef class Earlier:
    cdef JournalState state         # owned
    cdef dict numbers               # name of a channel: its number
    cdef readonly int64_t removed_to    # retention has removed all segments before this offset; 0: none
    cdef readonly tuple journal     # for a Recorder
    cdef readonly list files        # number, and whether part of it was unreadable
    cdef readonly int64_t damaged   # number of unreadable places
    cdef readonly int64_t torn_bytes    # of an incomplete frame at the end of a file, as after a kill

    # The cursor of a channel as it was; None: the journal does not have it.
    cdef Cursor cursor(self, TopicLog log, bytes name, StoreOwner owner)


cdef class TopicPlace(Journaled):
    # The topic's own place in its log: the first offset that is not for the channels.
    cdef readonly int64_t next

    cdef void move(self, int64_t next) noexcept


# From what was read of a folder: takes the state.
cdef Earlier make_earlier(JournalState *state, const FoundFiles *files)
cdef Cursor new_cursor(TopicLog log, bytes name, StoreOwner owner, bint ephemeral, int64_t start)
