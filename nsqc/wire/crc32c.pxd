# CRC-32C (Castagnoli), as snappy's frames carry it: of the plain bytes, masked.

from libc.stdint cimport uint32_t

cdef uint32_t crc32c(const unsigned char *c_at, Py_ssize_t length) noexcept nogil
cdef uint32_t crc32c_by_tables(const unsigned char *c_at, Py_ssize_t length) noexcept nogil  # without an instruction
# Turned and offset, so that a checksum over data with checksums in it stays sound.
cdef uint32_t crc32c_masked(const unsigned char *c_at, Py_ssize_t length) noexcept nogil
