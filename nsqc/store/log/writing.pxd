# The write side of a log: the collected records become a job; once written, they can be read.

from nsqc.store.log.append cimport AppendJob
from nsqc.store.log.logstate cimport LogState

cdef void write_next(LogState log) noexcept         # for a commit: its one_ended() follows
cdef void finish_write(LogState log, AppendJob *job) noexcept    # by a thread, or at once; takes the job
cdef void close_written(LogState log) noexcept      # the file being written to
