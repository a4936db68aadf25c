/* Numbers of NSQ's protocol: big-endian, four bytes. */
#ifndef BYTES_H
#define BYTES_H
#include <arpa/inet.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t get_u32(const char *from) {
    uint32_t value;
    memcpy(&value, from, 4);
    return ntohl(value);
}

/* Returns the end. */
static inline char *put_u32(char *to, uint32_t value) {
    value = htonl(value);
    memcpy(to, &value, 4);
    return to + 4;
}
#endif
