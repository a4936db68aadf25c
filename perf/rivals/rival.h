/* One client for several message servers: what a protocol has to provide, so that publishing and consuming are the same
 * loops for each.
 */
#ifndef RIVAL_H
#define RIVAL_H
#include "../client/conn.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ACKS_ROOM = 1 << 20, UNCONFIRMED_MAX = 1 << 16 };

typedef struct {
    int port, conns, size, batch, window;   /* window: batches without an answer, or messages without an acknowledgement */
    bool durable;                           /* the server stores messages on disk */
    long count;
    double seconds;
    const char *topic;
} Work;

typedef struct {
    Conn conn;                  /* first: an epoll event's pointer is both */
    int number;                 /* of the connection, from 0 */
    char *request;              /* owned: a batch, request_size bytes */
    size_t request_size;
    char *acks;                 /* owned, ACKS_ROOM bytes: acknowledgements of one read */
    long asked;                 /* messages requested and not received yet */
    long taken;                 /* messages received since the last acknowledgement that covers several */
    uint64_t tag;               /* the latest delivery; redis: bytes of ids in acks */
    uint64_t low;               /* the first message that is not confirmed */
    uint8_t *confirmed;         /* owned, UNCONFIRMED_MAX: whether a message from `low` on is confirmed, by its number */
    long entries;               /* of the answer that is being read */
    int state;                  /* of the parser within an answer */
} Peer;

typedef struct {
    const char *name;
    void (*setup)(Peer *peer, const Work *work);            /* creates the queue */
    void (*hello)(Peer *peer, const Work *work);            /* up to the first publish */
    char *(*put)(char *to, const Peer *peer, const Work *work, const char *body);   /* a batch as one write; the end */
    long (*answers)(Peer *peer, const Work *work);          /* takes whole answers: messages that they confirm */
    void (*subscribe)(Peer *peer, const Work *work);        /* up to the first delivery */
    long (*deliver)(Peer *peer, const Work *work, long left);   /* takes whole messages and acknowledges them; left: not
                                                                 * received yet when it is called */
} Protocol;

extern const Protocol NSQ, REDIS, BEANSTALK, NATS, RABBIT;

/* The input that is there. */
static inline const char *input(const Peer *peer, size_t *size) {
    *size = peer->conn.in_end - peer->conn.in_at;
    return peer->conn.in + peer->conn.in_at;
}

/* Waits until the input has a byte more. */
void wait_for_input(Peer *peer);

/* The next line without its CRLF, if it is whole; takes nothing. */
bool line_at(const Peer *peer, size_t from, const char **line, size_t *size);

/* Reads a line, waiting for it, and ends the program unless it begins with `start`. */
void expect_line(Peer *peer, const char *start);
#endif
