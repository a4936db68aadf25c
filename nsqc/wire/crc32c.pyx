"""CRC-32C: SSE 4.2 and PCLMUL instructions if the processor has them, otherwise tables."""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from "<endian.h>" nogil:
    uint32_t le32toh(uint32_t)

cdef extern from *:
    """
    #if defined(__x86_64__) && defined(__GNUC__)
    #include <immintrin.h>
    #define NSQC_HAS_CRC32C (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul"))
    #ifdef __clang__  // its own name for the instruction is unknown to older gcc
    #define NSQC_CRC32C_TARGET "sse4.2,crc32,pclmul"
    #else
    #define NSQC_CRC32C_TARGET "sse4.2,pclmul"
    #endif
    enum { NSQC_WORDS = 64, NSQC_LEAST = 160 };     // longest lane; fewest bytes that are worth lanes
    static uint32_t nsqc_shifts[2 * NSQC_WORDS + 1];

    static void nsqc_fill_shifts(void) {
        uint32_t value = 0x80000000u;   // x^0: bits are reflected
        int words, power = 0;
        for (words = 1; words <= 2 * NSQC_WORDS; words++) {
            for (; power < 64 * words - 33; power++)
                value = (value >> 1) ^ (value & 1 ? 0x82F63B78u : 0);
            nsqc_shifts[words] = value;
        }
    }

    // Extends a checksum by this many words of zeros, once the instruction has reduced it.
    __attribute__((target(NSQC_CRC32C_TARGET)))
    static inline uint64_t nsqc_shifted(uint64_t crc, Py_ssize_t words) {
        return (uint64_t) _mm_cvtsi128_si64(_mm_clmulepi64_si128(
            _mm_cvtsi32_si128((int) crc), _mm_cvtsi32_si128((int) nsqc_shifts[words]), 0));
    }

    __attribute__((target(NSQC_CRC32C_TARGET)))
    static inline uint64_t nsqc_crc32c_word(uint64_t crc, const unsigned char *at) {
        uint64_t word;
        memcpy(&word, at, 8);
        return __builtin_ia32_crc32di(crc, word);
    }

    // The instruction has a latency of three cycles and a throughput of one: three lanes take as long as one.
    __attribute__((target(NSQC_CRC32C_TARGET)))
    static uint32_t nsqc_crc32c(const unsigned char *at, Py_ssize_t length) {
        uint64_t crc = 0xFFFFFFFFu, second, third, word;
        uint32_t four;
        uint16_t two;
        const unsigned char *last;
        Py_ssize_t words, lane;
        while (length >= NSQC_LEAST) {
            words = length / 24 < NSQC_WORDS ? length / 24 : NSQC_WORDS;
            lane = 8 * words;
            second = third = 0;
            for (last = at + lane - 8; at < last; at += 8) {
                crc = nsqc_crc32c_word(crc, at);
                second = nsqc_crc32c_word(second, at + lane);
                third = nsqc_crc32c_word(third, at + 2 * lane);
            }
            crc = nsqc_crc32c_word(crc, at);
            second = nsqc_crc32c_word(second, at + lane);
            memcpy(&word, at + 2 * lane, 8);
            crc = __builtin_ia32_crc32di(third, word ^ nsqc_shifted(crc, 2 * words) ^ nsqc_shifted(second, words));
            at += 8 + 2 * lane;
            length -= 3 * lane;
        }
        for (; length >= 8; at += 8, length -= 8)
            crc = nsqc_crc32c_word(crc, at);
        if (length & 4) {
            memcpy(&four, at, 4);
            crc = __builtin_ia32_crc32si((uint32_t) crc, four);
            at += 4;
        }
        if (length & 2) {
            memcpy(&two, at, 2);
            crc = __builtin_ia32_crc32hi((uint32_t) crc, two);
            at += 2;
        }
        if (length & 1)
            crc = __builtin_ia32_crc32qi((uint32_t) crc, *at);
        return ~(uint32_t) crc;
    }
    #else
    #define NSQC_HAS_CRC32C 0
    static void nsqc_fill_shifts(void) {}
    static uint32_t nsqc_crc32c(const unsigned char *at, Py_ssize_t length) { (void) at; (void) length; return 0; }
    #endif
    """
    bint NSQC_HAS_CRC32C
    void nsqc_fill_shifts()
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
nsqc_fill_shifts()
