/* What both floors share: listening, accepting, one epoll loop, and the bytes of NSQ's protocol.
 *
 * A floor takes nsqd's --tcp-address and --http-address (127.0.0.1:PORT) and ignores its other flags.
 */
#ifndef PEER_H
#define PEER_H
#include "../client/bytes.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { AREA = 262144, MESSAGE_HEAD = 34 };      /* of a read; of a message frame, in front of the body */

/* A floor's own structure for a connection begins with this. */
typedef struct {
    int fd;
    bool listens, http, greeted;
} Peer;

typedef struct {
    size_t peer_bytes;
    void (*start)(void);
    void (*readable)(Peer *peer);
    void (*writable)(Peer *peer);
} Floor;

extern const Floor skipping, copying;
extern bool forward;                            /* --forward: a PUB's body goes to a subscriber at once */

void watch(Peer *peer, bool for_room);          /* for input, and for room to send */

/* The frame of a message up to its body, made for each message as any daemon must. */
static inline void put_message_head(char *to, uint32_t body_bytes, uint64_t id) {
    put_u32(to, body_bytes + MESSAGE_HEAD - 4);
    put_u32(to + 4, 2);
    memset(to + 8, 0, 9);
    to[17] = 1;
    for (int digit = 15; digit >= 0; digit--, id >>= 4)
        to[18 + digit] = "0123456789abcdef"[id & 15];
}
#endif
