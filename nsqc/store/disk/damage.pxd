# How a disk queue handles unreadable, missing and damaged files: see docs/ondisk.md.

from libc.stdint cimport int64_t
from nsqc.store.disk.filejobs cimport ReadJob
from nsqc.store.disk.state cimport QueueState

# The file cannot be read but may be intact: it stays, and reading is retried.
cdef int cannot_read(QueueState queue, int error) except -1
cdef void retry_later(QueueState queue, int error) noexcept         # the same, without a log line
cdef int skip_missing(QueueState queue, ReadJob *job) except -1     # the read file does not exist: skip to the next
# There is no record between the read position and this offset.
cdef int skip_damage(QueueState queue, int64_t upto, ReadJob *job) except -1
# The files have been read to their end, so depth is the count of buffered records.
cdef void correct_depth(QueueState queue) noexcept
