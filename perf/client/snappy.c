/* Snappy in its framing format, as much as a peer of a server needs: all chunks in, uncompressed chunks out. */
#include "stream.h"
#include <string.h>

enum { CHUNK_BYTES = 65536, COMPRESSED = 0x00, PLAIN = 0x01, CRC_BYTES = 4, HEAD_BYTES = 4 };

static uint32_t crc32c(const unsigned char *from, size_t size) {
    static uint32_t table[8][256];
    uint32_t crc = ~0u;
    if (!table[0][1]) {
        for (uint32_t at = 0; at < 256; at++) {
            uint32_t value = at;
            for (int bit = 0; bit < 8; bit++)
                value = value >> 1 ^ (value & 1 ? 0x82F63B78 : 0);
            table[0][at] = value;
        }
        for (int row = 1; row < 8; row++)
            for (int at = 0; at < 256; at++)
                table[row][at] = table[row - 1][at] >> 8 ^ table[0][table[row - 1][at] & 0xFF];
    }
    for (; size >= 8; from += 8, size -= 8) {
        uint32_t low, high;
        memcpy(&low, from, 4);
        memcpy(&high, from + 4, 4);
        low ^= crc;
        crc = table[7][low & 0xFF] ^ table[6][low >> 8 & 0xFF] ^ table[5][low >> 16 & 0xFF] ^ table[4][low >> 24]
            ^ table[3][high & 0xFF] ^ table[2][high >> 8 & 0xFF] ^ table[1][high >> 16 & 0xFF] ^ table[0][high >> 24];
    }
    for (; size; from++, size--)
        crc = crc >> 8 ^ table[0][(crc ^ *from) & 0xFF];
    return ~crc;
}

size_t snappy_encode(const char *from, size_t size, char *to) {
    char *began = to;
    while (size) {
        size_t piece = size < CHUNK_BYTES ? size : CHUNK_BYTES, length = piece + CRC_BYTES;
        uint32_t crc = crc32c((const unsigned char *)from, piece);
        crc = (crc >> 15 | crc << 17) + 0xA282EAD8;
        to[0] = PLAIN;
        to[1] = (char)length;
        to[2] = (char)(length >> 8);
        to[3] = (char)(length >> 16);
        memcpy(to + HEAD_BYTES, &crc, CRC_BYTES);
        memcpy(to + HEAD_BYTES + CRC_BYTES, from, piece);
        to += HEAD_BYTES + length;
        from += piece;
        size -= piece;
    }
    return (size_t)(to - began);
}

/* One compressed block. Checksums are left to the tests. */
static void block(const unsigned char *at, const unsigned char *end, Bytes *to) {
    size_t plain = 0, length, distance;
    int shift = 0;
    do
        plain |= (size_t)(*at & 0x7F) << shift, shift += 7;
    while (*at++ & 0x80);
    if (plain > CHUNK_BYTES)
        fail("a snappy block of %zu bytes", plain);
    bytes_need(to, plain + 64);
    char *put = to->data + to->end, *first = put, *last = put + plain;
    while (at < end) {
        unsigned char tag = *at++;
        if ((tag & 3) == 0) {
            length = tag >> 2;
            if (length >= 60) {
                unsigned more = (unsigned)length - 59;
                length = 0;
                for (unsigned byte = 0; byte < more; byte++)
                    length |= (size_t)*at++ << 8 * byte;
            }
            length++;
            if (length > (size_t)(last - put) || length > (size_t)(end - at))
                fail("a snappy literal is too long");
            memcpy(put, at, length);
            at += length;
            put += length;
            continue;
        }
        if ((tag & 3) == 1) {
            length = 4 + (tag >> 2 & 7);
            distance = (size_t)(tag >> 5) << 8 | *at++;
        } else {
            length = 1 + (tag >> 2);
            distance = at[0] | (size_t)at[1] << 8;
            at += 2;
            if ((tag & 3) == 3)
                distance |= (size_t)at[0] << 16 | (size_t)at[1] << 24, at += 2;
        }
        if (distance == 0 || distance > (size_t)(put - first) || length > (size_t)(last - put))
            fail("a snappy copy is out of range");
        if (distance >= length)
            memcpy(put, put - distance, length), put += length;
        else
            for (; length; length--, put++)
                *put = put[-(ptrdiff_t)distance];
    }
    to->end += plain;
}

size_t snappy_decode(const unsigned char *from, size_t size, Bytes *to) {
    size_t used = 0;
    while (size - used >= HEAD_BYTES) {
        const unsigned char *at = from + used;
        size_t length = at[1] | (size_t)at[2] << 8 | (size_t)at[3] << 16;
        if (size - used < HEAD_BYTES + length)
            break;
        const unsigned char *data = at + HEAD_BYTES + CRC_BYTES;
        if (at[0] == COMPRESSED)
            block(data, at + HEAD_BYTES + length, to);
        else if (at[0] == PLAIN) {
            bytes_need(to, length);
            memcpy(to->data + to->end, data, length - CRC_BYTES);
            to->end += length - CRC_BYTES;
        }
        used += HEAD_BYTES + length;
    }
    return used;
}
