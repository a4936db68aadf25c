# SipHash, and a check of its input's bytes. Header only, without a module.

from libc.stdint cimport uint64_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #define NSQC_ROTATED(word, bits) ((word) << (bits) | (word) >> (64 - (bits)))
    #define NSQC_ROUND \\
        do { \\
            v0 += v1; v2 += v3; \\
            v1 = NSQC_ROTATED(v1, 13) ^ v0; v3 = NSQC_ROTATED(v3, 16) ^ v2; \\
            v0 = NSQC_ROTATED(v0, 32); \\
            v2 += v1; v0 += v3; \\
            v1 = NSQC_ROTATED(v1, 17) ^ v2; v3 = NSQC_ROTATED(v3, 21) ^ v0; \\
            v2 = NSQC_ROTATED(v2, 32); \\
        } while (0)

    /* The last bytes of a text, fewer than eight, as the low ones of a word. */
    static inline uint64_t nsqc_tail(const char *data, Py_ssize_t length) {
        Py_ssize_t left = length & 7, at;
        uint64_t word = 0;
        if (length >= 8 && left) {
            memcpy(&word, data + length - 8, 8);
            return word >> (64 - 8 * left);
        }
        for (at = 0; at < left; at++)
            word |= (uint64_t) (unsigned char) data[at] << 8 * at;
        return word;
    }

    /* SipHash with 128 bits, on a little-endian machine: what the hash is elsewhere differs, and does not matter. */
    static inline void nsqc_siphash(const uint64_t *key, const char *data, Py_ssize_t length, int compression,
                                    int finalization, uint64_t *low, uint64_t *high) {
        uint64_t v0 = key[0] ^ 0x736f6d6570736575ULL, v1 = key[1] ^ 0x646f72616e646f6dULL ^ 0xee;
        uint64_t v2 = key[0] ^ 0x6c7967656e657261ULL, v3 = key[1] ^ 0x7465646279746573ULL, word;
        Py_ssize_t at;
        int round;
        for (at = 0; at + 8 <= length; at += 8) {
            memcpy(&word, data + at, 8);
            v3 ^= word;
            for (round = 0; round < compression; round++) NSQC_ROUND;
            v0 ^= word;
        }
        word = nsqc_tail(data, length) | (uint64_t) length << 56;
        v3 ^= word;
        for (round = 0; round < compression; round++) NSQC_ROUND;
        v0 ^= word;
        v2 ^= 0xee;
        for (round = 0; round < finalization; round++) NSQC_ROUND;
        *low = v0 ^ v1 ^ v2 ^ v3;
        v1 ^= 0xdd;
        for (round = 0; round < finalization; round++) NSQC_ROUND;
        *high = v0 ^ v1 ^ v2 ^ v3;
    }

    /* Whether all bytes are from '!' to '~'. Eight at once: without carries, as none has its high bit. */
    static inline int nsqc_is_printable(const char *data, Py_ssize_t length) {
        const uint64_t ones = 0x0101010101010101ULL;
        uint64_t word, wrong = 0;
        Py_ssize_t at;
        if (length < 8) {
            for (at = 0; at < length; at++)
                if (data[at] < '!' || data[at] > '~')
                    return 0;
            return 1;
        }
        for (at = 0; at < length; at += 8) {
            memcpy(&word, data + (at + 8 <= length ? at : length - 8), 8);
            wrong |= word | ~((word & 0x7f * ones) + 0x5f * ones) | ((word & 0x7f * ones) + ones);
        }
        return (wrong & 0x80 * ones) == 0;
    }
    """
    void nsqc_siphash(const uint64_t *key, const char *data, Py_ssize_t length, int compression, int finalization,
                      uint64_t *low, uint64_t *high) nogil
    bint nsqc_is_printable(const char *data, Py_ssize_t length) nogil
