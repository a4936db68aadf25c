# CRC-32C (Castagnoli), as snappy's frames carry it: of the plain bytes, masked.

from libc.stdint cimport uint32_t

cdef uint32_t crc32c(const unsigned char *c_at, Py_ssize_t length) noexcept nogil
# Turned and offset, so that a checksum over data with checksums in it stays sound.
cdef uint32_t crc32c_masked(const unsigned char *c_at, Py_ssize_t length) noexcept nogil
