# Loads and stores big-endian numbers, unaligned. Header only: there is no module.

from libc.stdint cimport uint16_t, uint32_t, uint64_t, int32_t, int64_t
from libc.string cimport memcpy

cdef extern from "<endian.h>" nogil:
    uint16_t htobe16(uint16_t)
    uint32_t htobe32(uint32_t)
    uint64_t htobe64(uint64_t)
    uint16_t be16toh(uint16_t)
    uint32_t be32toh(uint32_t)
    uint64_t be64toh(uint64_t)


cdef inline int32_t load_i32(const char *c_from) noexcept nogil:
    cdef uint32_t raw
    memcpy(&raw, c_from, 4)
    return <int32_t> be32toh(raw)


cdef inline int64_t load_i64(const char *c_from) noexcept nogil:
    cdef uint64_t raw
    memcpy(&raw, c_from, 8)
    return <int64_t> be64toh(raw)


cdef inline uint16_t load_u16(const char *c_from) noexcept nogil:
    cdef uint16_t raw
    memcpy(&raw, c_from, 2)
    return be16toh(raw)


cdef inline void store_u16(char *c_to, uint16_t value) noexcept nogil:
    cdef uint16_t raw = htobe16(value)
    memcpy(c_to, &raw, 2)


cdef inline void store_i32(char *c_to, int32_t value) noexcept nogil:
    cdef uint32_t raw = htobe32(<uint32_t> value)
    memcpy(c_to, &raw, 4)


cdef inline void store_i64(char *c_to, int64_t value) noexcept nogil:
    cdef uint64_t raw = htobe64(<uint64_t> value)
    memcpy(c_to, &raw, 8)
