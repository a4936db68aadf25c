# What a log removes: segments that nobody needs. See TopicLog.retain().

from libc.stdint cimport int64_t
from nsqc.store.log.logstate cimport LogState

cdef int64_t retain_segments(LogState log, int64_t needed, int64_t retain_ns, int64_t retain_bytes,
                             bint drops) except -1
