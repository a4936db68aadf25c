# What an earlier run has left in the journal of a log, until the channels have taken it.

from libc.stdint cimport int64_t
from nsqc.store.backlog cimport BacklogOwner
from nsqc.store.log.cursor cimport Cursor
from nsqc.store.log.journal cimport LogState
from nsqc.store.log.listing cimport Listing
from nsqc.store.log.recorder cimport Journaled
from nsqc.store.log.topiclog cimport TopicLog


cdef class Earlier:
    cdef LogState state         # owned
    cdef readonly bint damaged  # part of the journal could not be read
    cdef readonly list numbers  # of the journals that are needed
    cdef readonly list strays   # names of files that are named like journals, and are not of this log

    # The cursor of a channel as it was; None: the journal does not have it.
    cdef Cursor cursor(self, TopicLog log, bytes name, BacklogOwner owner)


cdef class TopicPlace(Journaled):
    # The topic's own place in its log: the first offset that is not for the channels.
    cdef readonly int64_t next

    cdef void move(self, int64_t next) noexcept


# From what was read of a folder: takes the state.
cdef Earlier make_earlier(LogState *state, Listing *listing)
cdef Cursor new_cursor(TopicLog log, bytes name, BacklogOwner owner, bint ephemeral, int64_t start)
