# Records as lines of JSON.

from libc.stdint cimport int64_t

from nsqc.store.log.buffer cimport Buffer
from nsqc.store.log.frame cimport Frame

# Bytes of the line of one record, given by its index in the frame at c_frame.
cdef int64_t line_bytes(const char *c_frame, const Frame *frame, const char *c_record, int64_t index) noexcept nogil
# 0 or ENOMEM.
cdef int put_line(Buffer *text, const char *c_frame, const Frame *frame, const char *c_record,
                  int64_t index) noexcept nogil
