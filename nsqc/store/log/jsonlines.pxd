# Records as lines of JSON.

from libc.stdint cimport int64_t

from nsqc.store.log.frame cimport Frame


cdef struct Text:
    char *c_data            # owned
    int64_t length, room

# Of the line of a record, which is that of an index in its frame.
cdef int64_t line_bytes(const Frame *frame, const char *c_record, int64_t index) noexcept nogil
cdef int put_line(Text *text, const Frame *frame, const char *c_record, int64_t index) noexcept nogil   # 0 or ENOMEM
