/* The floor for bodies of any size: what one core can do that keeps each body in memory of its own and sends it from
 * there. One thread, epoll, one topic, one channel, nothing but the copying:
 *
 *   PUB, MPUB   each body is copied once, into memory of its own; then OK
 *   SUB, RDY    what is kept goes out, oldest first, gathered from where it lies: no further copy
 *   FIN         gives the memory back
 *
 * It takes nsqd's --tcp-address and --http-address (127.0.0.1:PORT; HTTP answers 200 to everything) and ignores other flags.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { AREA = 262144, LINE_MAX_BYTES = 256, HEAD = 34, PARTS = 512, MAX_EVENTS = 64, ARENA = 1 << 26, HUGE = 1 << 21 };

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
    int fd;
    bool listens, http, greeted;
    char line[LINE_MAX_BYTES + 8];      /* an unfinished line, or the size field behind it */
    size_t line_bytes;
    uint32_t left;              /* messages of the publish under way that are still to come; its OK follows them */
    char size_field[4];
    uint32_t size_have;
    Body *partial;
    uint32_t have;
    long room, rdy;
    Body *sent[PARTS];          /* bodies of the write under way: the socket did not take all of it */
    struct iovec parts[2 * PARTS];
    char heads[PARTS][HEAD];
    int part_at, part_end;
    bool watched;
} Peer;

static char area[AREA];
static Body *first, *last;
static Arena *filling, *spare;
static uint64_t next_id = 1;
static int poll_fd;
static Peer *subscriber;
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

static uint32_t get_u32(const char *from) {
    uint32_t value;
    memcpy(&value, from, 4);
    return ntohl(value);
}

static void put_u32(char *to, uint32_t value) {
    value = htonl(value);
    memcpy(to, &value, 4);
}

static void watch(Peer *peer, int how, bool out) {
    struct epoll_event event = {.events = EPOLLIN | (out ? EPOLLOUT : 0), .data.ptr = peer};
    epoll_ctl(poll_fd, how, peer->fd, &event);
    peer->watched = out;
}

static void drop(Peer *peer) {
    if (subscriber == peer)
        subscriber = NULL;
    close(peer->fd);
    free(peer);
}

/* Sends what is gathered; false: the socket does not take all of it. */
static bool send_parts(Peer *peer) {
    while (peer->part_at < peer->part_end) {
        struct msghdr message = {.msg_iov = peer->parts + peer->part_at, .msg_iovlen = (size_t)(peer->part_end - peer->part_at)};
        ssize_t sent = sendmsg(peer->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
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
    if (all == peer->watched)
        watch(peer, EPOLL_CTL_MOD, !all);
    return all;
}

static void pump(Peer *peer) {
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
            put_u32(head, body->size + 30);
            put_u32(head + 4, 2);
            memset(head + 8, 0, 9);
            head[17] = 1;
            flight[id % flight_room] = body;
            for (int digit = 15; digit >= 0; digit--, id >>= 4)
                head[18 + digit] = "0123456789abcdef"[id & 15];
            peer->parts[peer->part_end++] = (struct iovec){head, HEAD};
            peer->parts[peer->part_end++] = (struct iovec){body->bytes, body->size};
            bytes += HEAD + body->size;
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
static void run_line(Peer *peer, const char *line) {
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

static void body_done(Peer *peer) {
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

static void size_done(Peer *peer) {
    uint32_t value = get_u32(peer->size_field);
    peer->size_have = 0;
    if (peer->left == UINT32_MAX)
        peer->left--;           /* the size of all */
    else if (peer->left == UINT32_MAX - 1)
        peer->left = value;
    else
        peer->partial = body_new(value), peer->have = 0;
}

static void read_v2(Peer *peer, const char *at, const char *end) {
    if (!peer->greeted) {
        peer->greeted = true;
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

/* Straight into a body's own memory where much of it is missing. */
static void take_input(Peer *peer) {
    bool direct = peer->partial && peer->partial->size - peer->have >= 16384;
    char *to = direct ? peer->partial->bytes + peer->have : area;
    ssize_t got = recv(peer->fd, to, direct ? peer->partial->size - peer->have : AREA, MSG_DONTWAIT);
    if (got <= 0) {
        drop(peer);
        return;
    }
    if (peer->http) {
        static const char ok[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK";
        if (send(peer->fd, ok, sizeof ok - 1, MSG_NOSIGNAL) < 0)
            drop(peer);
        return;
    }
    if (direct) {
        peer->have += (uint32_t)got;
        if (peer->have == peer->partial->size)
            body_done(peer);
    } else {
        read_v2(peer, area, area + got);
    }
    if (answers_end && send(peer->fd, answers, answers_end, MSG_NOSIGNAL) < 0)
        exit(5);
    answers_end = 0;
    if (subscriber)
        pump(subscriber);
}

static void listen_on(const char *address, bool http) {
    const char *port = strrchr(address, ':');
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port ? port + 1 : "0")),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1;
    Peer *peer = calloc(1, sizeof *peer);
    peer->listens = true;
    peer->http = http;
    peer->fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(peer->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(peer->fd, (struct sockaddr *)&at, sizeof at) || listen(peer->fd, 1024)) {
        perror(address);
        exit(1);
    }
    watch(peer, EPOLL_CTL_ADD, false);
}

static void take_connection(const Peer *listener) {
    int on = 1, fd = accept(listener->fd, NULL, NULL);
    if (fd < 0)
        return;
    Peer *peer = calloc(1, sizeof *peer);
    peer->fd = fd;
    peer->http = listener->http;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    watch(peer, EPOLL_CTL_ADD, false);
}

int main(int argc, char **argv) {
    static const char tcp[] = "--tcp-address=", http[] = "--http-address=";
    struct epoll_event events[MAX_EVENTS];
    poll_fd = epoll_create1(0);
    flight_room = 1 << 20;
    flight = calloc(flight_room, sizeof *flight);
    for (int at = 1; at < argc; at++) {
        if (!strncmp(argv[at], tcp, sizeof tcp - 1))
            listen_on(argv[at] + sizeof tcp - 1, false);
        if (!strncmp(argv[at], http, sizeof http - 1))
            listen_on(argv[at] + sizeof http - 1, true);
    }
    for (;;) {
        int found = epoll_wait(poll_fd, events, MAX_EVENTS, -1);
        for (int at = 0; at < found; at++) {
            Peer *peer = events[at].data.ptr;
            if (peer->listens) {
                take_connection(peer);
                continue;
            }
            if (events[at].events & EPOLLOUT)
                pump(peer);
            if (events[at].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
                take_input(peer);
        }
    }
}
