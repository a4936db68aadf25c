# The write side of a log: what the buffer has becomes a job, and what that has written can be read.

from nsqc.store.log.jobs cimport AppendJob
from nsqc.store.log.logstate cimport LogState

cdef bint write_next(LogState log) noexcept         # as CommitLog.begin_write()
cdef void finish_write(LogState log, AppendJob *job) noexcept    # by a thread, or at once; takes the job
cdef void finish_entries(LogState log) noexcept     # as CommitLog.end_write()
