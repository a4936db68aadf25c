# CRC-32C (Castagnoli). Snappy's chunks carry the masked checksum of the decoded bytes.

from libc.stdint cimport uint32_t

cdef uint32_t crc32c(const unsigned char *c_at, Py_ssize_t length) noexcept nogil
cdef uint32_t crc32c_by_tables(const unsigned char *c_at, Py_ssize_t length) noexcept nogil  # software version
# Rotated, plus a constant: a checksum over data that contains checksums would be weak otherwise.
cdef uint32_t crc32c_masked(const unsigned char *c_at, Py_ssize_t length) noexcept nogil
