# The folders of logs at a start: found on threads, one after the other, and opened by the loop.

from libc.stdint cimport int64_t

from nsqc.store.log.earlier cimport Earlier
from nsqc.store.log.found cimport Found


cdef class Opened:
    # What a folder has. Its segments are for one TopicLog.
    cdef Found found                # owned
    cdef readonly Earlier earlier   # channels
    cdef readonly int64_t next      # the offset after the last record
    cdef public int64_t resume_at   # where the next record has to go at the least
    cdef readonly int64_t lost      # messages that are gone with the newest segment; at least that many
    cdef readonly int64_t had       # messages after its last record that a channel has had, and that are gone
