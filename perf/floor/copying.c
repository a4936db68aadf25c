/* The floor for bodies of any size: what one core can do that keeps each body in memory of its own and sends it from
 * there. One topic, one channel, nothing but the copying:
 *
 *   PUB, MPUB   each body is copied once, into memory of its own; then OK
 *   SUB, RDY    what is kept goes out, oldest first, gathered from where it lies: no further copy
 *   FIN         gives the memory back
 *
 * HTTP answers 200 to everything.
 */
#define _GNU_SOURCE
#include "peer.h"
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 256, PARTS = 512, ARENA = 1 << 26 };

typedef struct Body {
    struct Body *next;          /* of those that wait, in order */
    uint32_t size;
    char bytes[];
} Body;

/* Memory is handed out piece after piece from large arenas; an arena whose bodies have all gone is used again. */
typedef struct Arena {
    struct Arena *next;
    size_t used;
    long alive;
} Arena;

typedef struct {
    Peer base;
    char line[LINE_MAX_BYTES + 8];      /* an unfinished line, or the size field behind it */
    size_t line_bytes;
    uint32_t left;              /* messages of the publish under way that are still to come; its OK follows them */
    char size_field[4];
    uint32_t size_have;
    Body *partial;
    uint32_t have;
    long room, rdy;
    struct iovec parts[2 * PARTS];      /* of the write under way: the socket did not take all of it */
    char heads[PARTS][MESSAGE_HEAD];
    int part_at, part_end;
    bool watched;
} Copier;

static char area[AREA];
static Body *first, *last;
static Arena *filling, *spare;
static uint64_t next_id = 1;
static Copier *subscriber;
static char answers[AREA];
static size_t answers_end;

/* What is in flight, by the order of its ids: FINs come in about that order. */
static Body **flight;
static uint64_t flight_room;

static Arena *arena_of(void *piece) { return (Arena *)((uintptr_t)piece & ~(uintptr_t)(ARENA - 1)); }

static Arena *arena_new(void) {
    Arena *made = spare;
    if (made) {
        spare = made->next;
    } else {
        char *raw = mmap(NULL, 2 * (size_t)ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (raw == MAP_FAILED)
            exit(3);
        made = (Arena *)(((uintptr_t)raw + ARENA - 1) & ~(uintptr_t)(ARENA - 1));
        madvise(made, ARENA, MADV_HUGEPAGE);
    }
    made->used = 64;
    made->alive = 0;
    return made;
}

static Body *body_new(uint32_t size) {
    size_t bytes = (sizeof(Body) + size + 15) & ~(size_t)15;
    if (!filling || filling->used + bytes > ARENA)
        filling = arena_new();
    Body *made = (Body *)((char *)filling + filling->used);
    filling->used += bytes;
    filling->alive++;
    made->next = NULL;
    made->size = size;
    return made;
}

static void body_free(Body *body) {
    Arena *arena = arena_of(body);
    if (--arena->alive == 0 && arena != filling) {
        arena->next = spare;
        spare = arena;
    }
}

static void drop(Copier *peer) {
    if (subscriber == peer)
        subscriber = NULL;
    close(peer->base.fd);
    free(peer);
}

/* Sends what is gathered; false: the socket does not take all of it. */
static bool send_parts(Copier *peer) {
    while (peer->part_at < peer->part_end) {
        struct msghdr message = {.msg_iov = peer->parts + peer->part_at, .msg_iovlen = (size_t)(peer->part_end - peer->part_at)};
        ssize_t sent = sendmsg(peer->base.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0)
            break;
        for (; peer->part_at < peer->part_end && (size_t)sent >= peer->parts[peer->part_at].iov_len; peer->part_at++)
            sent -= (ssize_t)peer->parts[peer->part_at].iov_len;
        if (sent) {
            peer->parts[peer->part_at].iov_base = (char *)peer->parts[peer->part_at].iov_base + sent;
            peer->parts[peer->part_at].iov_len -= (size_t)sent;
        }
    }
    bool all = peer->part_at == peer->part_end;
    if (all == peer->watched) {
        peer->watched = !all;
        watch(&peer->base, !all);
    }
    return all;
}

static void pump(Copier *peer) {
    while (peer->room > 0 && first && send_parts(peer)) {
        size_t bytes = 0;
        peer->part_at = peer->part_end = 0;
        for (int at = 0; at < PARTS && bytes < AREA && peer->room > 0 && first; at++) {
            Body *body = first;
            char *head = peer->heads[at];
            uint64_t id = next_id++;
            first = body->next;
            if (!first)
                last = NULL;
            put_message_head(head, body->size, id);
            flight[id % flight_room] = body;
            peer->parts[peer->part_end++] = (struct iovec){head, MESSAGE_HEAD};
            peer->parts[peer->part_end++] = (struct iovec){body->bytes, body->size};
            bytes += MESSAGE_HEAD + body->size;
            peer->room--;
        }
    }
    send_parts(peer);
}

static void answer_ok(void) {
    memcpy(answers + answers_end, "\0\0\0\6\0\0\0\0OK", 10);
    answers_end += 10;
}

static void finish(const char *id_text) {
    char text[17] = {0};
    memcpy(text, id_text, 16);
    uint64_t id = strtoull(text, NULL, 16);
    if (flight[id % flight_room])
        body_free(flight[id % flight_room]);
    flight[id % flight_room] = NULL;
}

/* A whole line; behind PUB and MPUB come sizes and bodies. */
static void run_line(Copier *peer, const char *line) {
    if (*line == 'P') {
        peer->left = 1;
    } else if (*line == 'M') {
        peer->left = UINT32_MAX;        /* two more fields: the size of all, and the count */
    } else if (*line == 'I') {
        peer->left = UINT32_MAX - 2;    /* a body that is not kept */
    } else if (*line == 'F') {
        peer->room++;
        finish(line + 4);
    } else if (*line == 'R') {
        long rdy = atol(line + 4);
        peer->room += rdy - peer->rdy;
        peer->rdy = rdy;
    } else if (*line == 'S') {
        subscriber = peer;
        answer_ok();
    }
}

static void body_done(Copier *peer) {
    Body *body = peer->partial;
    peer->partial = NULL;
    if (peer->left == UINT32_MAX - 2) {
        peer->left = 0;
        body_free(body);
        answer_ok();
        return;
    }
    if (last)
        last->next = body;
    else
        first = body;
    last = body;
    if (--peer->left == 0)
        answer_ok();
}

static void size_done(Copier *peer) {
    uint32_t value = get_u32(peer->size_field);
    peer->size_have = 0;
    if (peer->left == UINT32_MAX)
        peer->left--;           /* the size of all */
    else if (peer->left == UINT32_MAX - 1)
        peer->left = value;
    else
        peer->partial = body_new(value), peer->have = 0;
}

static void read_v2(Copier *peer, const char *at, const char *end) {
    if (!peer->base.greeted) {
        peer->base.greeted = true;
        at += 4;
    }
    while (at < end) {
        size_t part = (size_t)(end - at);
        if (peer->partial) {
            part = part < peer->partial->size - peer->have ? part : peer->partial->size - peer->have;
            memcpy(peer->partial->bytes + peer->have, at, part);
            peer->have += (uint32_t)part;
            at += part;
            if (peer->have == peer->partial->size)
                body_done(peer);
        } else if (peer->left) {
            peer->size_field[peer->size_have++] = *at++;
            if (peer->size_have == 4)
                size_done(peer);
        } else {
            const char *feed = memchr(at, '\n', part);
            size_t bytes = feed ? (size_t)(feed + 1 - at) : part;
            if (peer->line_bytes + bytes > LINE_MAX_BYTES)
                exit(4);
            memcpy(peer->line + peer->line_bytes, at, bytes);
            peer->line_bytes += bytes;
            at += bytes;
            if (feed) {
                run_line(peer, peer->line);
                peer->line_bytes = 0;
            }
        }
    }
}

/* Reads straight into a body's own memory where much of it is missing. */
static void readable(Peer *base) {
    Copier *peer = (Copier *)base;
    bool direct = peer->partial && peer->partial->size - peer->have >= 16384;
    char *to = direct ? peer->partial->bytes + peer->have : area;
    ssize_t received = recv(peer->base.fd, to, direct ? peer->partial->size - peer->have : AREA, MSG_DONTWAIT);
    if (received <= 0) {
        drop(peer);
        return;
    }
    if (peer->base.http) {
        static const char ok[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK";
        if (send(peer->base.fd, ok, sizeof ok - 1, MSG_NOSIGNAL) < 0)
            drop(peer);
        return;
    }
    if (direct) {
        peer->have += (uint32_t)received;
        if (peer->have == peer->partial->size)
            body_done(peer);
    } else {
        read_v2(peer, area, area + received);
    }
    if (answers_end && send(peer->base.fd, answers, answers_end, MSG_NOSIGNAL) < 0)
        exit(5);
    answers_end = 0;
    if (subscriber)
        pump(subscriber);
}

static void writable(Peer *base) { pump((Copier *)base); }

static void start(void) {
    flight_room = 1 << 20;
    flight = calloc(flight_room, sizeof *flight);
    if (!flight)
        exit(3);
}

const Floor copying = {sizeof(Copier), start, readable, writable};
