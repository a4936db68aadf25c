# Builds frames in a send buffer.
#
#   offset  bytes  field                          of a message frame, the data:
#        0      4  size of type and data              8      8  timestamp, nanoseconds since 1970
#        4      4  type (FRAME_*)                    16      2  attempts
#        8      n  data                              18     16  message id
#                                                    34      n  body

from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t

cdef struct SendBuf:
    char *data          # owned; NULL while empty and idle
    Py_ssize_t length   # bytes to send
    Py_ssize_t room     # bytes allocated
    Py_ssize_t usual    # slightly above its recent peak: the buffer grows to it in one step

# All return 0, or -1 if out of memory; then the buffer is unchanged.
cdef int frame_bytes(SendBuf *buf, int32_t frame_type, const char *c_data, Py_ssize_t length) noexcept nogil
# A message frame without its body, which is sent separately.
cdef int frame_message_head(SendBuf *buf, int64_t timestamp_ns, uint16_t attempts, const char *c_id,
                            uint32_t size) noexcept nogil
cdef int frame_message(SendBuf *buf, int64_t timestamp_ns, uint16_t attempts, const char *c_id,
                       const char *c_body, uint32_t size) noexcept nogil
cdef void sendbuf_clear(SendBuf *buf) noexcept nogil    # empties it, keeping at most a small allocation
cdef void sendbuf_free(SendBuf *buf) noexcept nogil
