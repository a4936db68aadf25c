# Opens log folders at a start: threads read them one by one, the loop opens them.

from libc.stdint cimport int64_t

from nsqc.store.log.earlier cimport Earlier
from nsqc.store.log.found cimport Found


cdef class Opened:
    # The contents of a folder. One TopicLog takes its segments.
    cdef Found found                # owned
    cdef readonly Earlier earlier   # channels
    cdef readonly int64_t next      # the offset after the last record
    cdef public int64_t resume_at   # the next record goes to this offset or later
    cdef readonly int64_t lost      # messages gone with the newest segment, at least
    cdef readonly int64_t lost_first    # messages of segments before the first one that retention has not removed
    cdef readonly int64_t had       # messages after the last record that a channel had received, and that are gone
