# Appends the index of a finished segment to its file, on a thread. If that fails, readers only walk further.

from nsqc.store.disk.pool cimport IoPool
from nsqc.store.log.index cimport Index
from nsqc.store.log.segments cimport Segment

# Cuts the zeros that were reserved for frames off the newest segment's file; 0 or errno.
cdef int segment_trim(const char *c_folder, const Segment *segment) noexcept nogil
cdef void seal_begin(IoPool io, bytes c_folder, const Segment *segment, const Index *index) noexcept   # owns index
