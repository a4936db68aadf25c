"""CRC-32C, eight bytes at a time: by the instruction of SSE 4.2 if the processor has it, otherwise by tables."""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from "<endian.h>" nogil:
    uint32_t le32toh(uint32_t)

cdef extern from *:
    """
    #if defined(__x86_64__) && defined(__GNUC__)
    #define NSQC_HAS_CRC32C __builtin_cpu_supports("sse4.2")
    #ifdef __clang__  // has a name of its own for the instruction, which older gcc does not know
    #define NSQC_CRC32C_TARGET "sse4.2,crc32"
    #else
    #define NSQC_CRC32C_TARGET "sse4.2"
    #endif
    __attribute__((target(NSQC_CRC32C_TARGET)))
    static uint32_t nsqc_crc32c(const unsigned char *at, Py_ssize_t length) {
        uint64_t crc = 0xFFFFFFFFu, eight;
        for (; length >= 8; at += 8, length -= 8) {
            memcpy(&eight, at, 8);
            crc = __builtin_ia32_crc32di(crc, eight);
        }
        for (; length > 0; at++, length--)
            crc = __builtin_ia32_crc32qi((uint32_t) crc, *at);
        return ~(uint32_t) crc;
    }
    #else
    #define NSQC_HAS_CRC32C 0
    static uint32_t nsqc_crc32c(const unsigned char *at, Py_ssize_t length) { (void) at; (void) length; return 0; }
    #endif
    """
    bint NSQC_HAS_CRC32C
    uint32_t nsqc_crc32c(const unsigned char *c_at, Py_ssize_t length) nogil

cdef enum:
    POLYNOMIAL = 0x82F63B78     # reflected
    MASK_DELTA = 0xA282EAD8

cdef uint32_t[8][256] tables
cdef bint has_instruction = NSQC_HAS_CRC32C


cdef void fill_tables() noexcept nogil:
    cdef uint32_t value
    cdef int byte, _bit, table
    for byte in range(256):
        value = <uint32_t> byte
        for _bit in range(8):
            value = (value >> 1) ^ (<uint32_t> POLYNOMIAL if value & 1 else 0)
        tables[0][byte] = value
    for byte in range(256):
        value = tables[0][byte]
        for table in range(1, 8):
            value = (value >> 8) ^ tables[0][value & 0xFF]
            tables[table][byte] = value


cdef uint32_t crc32c(const unsigned char *c_at, Py_ssize_t length) noexcept nogil:
    return nsqc_crc32c(c_at, length) if has_instruction else crc32c_by_tables(c_at, length)


cdef uint32_t crc32c_by_tables(const unsigned char *c_at, Py_ssize_t length) noexcept nogil:
    cdef uint32_t crc = ~<uint32_t> 0
    cdef uint32_t low, high
    while length >= 8:
        memcpy(&low, c_at, 4)
        memcpy(&high, c_at + 4, 4)
        low = le32toh(low) ^ crc
        high = le32toh(high)
        crc = (tables[7][low & 0xFF] ^ tables[6][(low >> 8) & 0xFF] ^ tables[5][(low >> 16) & 0xFF]
               ^ tables[4][low >> 24] ^ tables[3][high & 0xFF] ^ tables[2][(high >> 8) & 0xFF]
               ^ tables[1][(high >> 16) & 0xFF] ^ tables[0][high >> 24])
        c_at += 8
        length -= 8
    while length > 0:
        crc = (crc >> 8) ^ tables[0][(crc ^ c_at[0]) & 0xFF]
        c_at += 1
        length -= 1
    return ~crc


cdef uint32_t crc32c_masked(const unsigned char *c_at, Py_ssize_t length) noexcept nogil:
    cdef uint32_t crc = crc32c(c_at, length)
    return <uint32_t> (((crc >> 15) | (crc << 17)) + <uint64_t> MASK_DELTA)


fill_tables()
