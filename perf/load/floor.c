/* The floor: what the kernel's loopback and one core allow any nsqd on this machine. One thread, epoll, no queue.
 *
 * It skips the bodies of PUB and MPUB and answers OK; it frames the same body again and again for a subscriber, as long
 * as RDY allows, and counts its FINs; it answers every HTTP request with 200. With --forward the body of a PUB goes to
 * a subscriber at once: the floor of PUB to delivery. It takes nsqd's --tcp-address and --http-address (127.0.0.1:PORT)
 * and passes over all other flags.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { AREA = 262144, KEPT_MAX = 65536, BODY = 200, DATA = 26 + BODY, FRAME = 8 + DATA, BURST = 512, MAX_EVENTS = 256 };

typedef struct {
    int fd;
    bool listens, http, greeted;
    size_t skip;                /* bytes of a body still to come; its OK follows */
    long room;                  /* RDY - in flight */
    long rdy;
    char *kept;                 /* owned: the head of an unfinished command */
    size_t kept_bytes;
    char *out;                  /* owned: what the socket did not take */
    size_t out_at, out_end;
} Peer;

static char area[KEPT_MAX + AREA];          /* what is kept of a peer is put right before its next bytes */
static char answers[AREA];                  /* what one read is answered with */
static size_t answers_end;
static char burst[BURST * FRAME];
static char body[BODY];
static uint64_t next_id = 1;
static int poll_fd;
static bool forward;
static Peer *subscriber;

static void put_u32(char *to, uint32_t value) {
    value = htonl(value);
    memcpy(to, &value, 4);
}

static void put_id(char *to) {
    uint64_t id = next_id++;
    for (int at = 15; at >= 0; at--, id >>= 4)
        to[at] = "0123456789abcdef"[id & 15];
}

/* A message frame, made anew for each message as any daemon must. */
static void put_frame(char *to, const char *bytes) {
    put_u32(to, DATA + 4);
    put_u32(to + 4, 2);
    memset(to + 8, 0, 9);
    to[17] = 1;
    put_id(to + 18);
    memcpy(to + 34, bytes, BODY);
}

static void watch(Peer *peer, int how) {
    struct epoll_event event = {.events = EPOLLIN | (peer->out_end ? EPOLLOUT : 0), .data.ptr = peer};
    epoll_ctl(poll_fd, how, peer->fd, &event);
}

static void drop(Peer *peer) {
    if (subscriber == peer)
        subscriber = NULL;
    close(peer->fd);
    free(peer->kept);
    free(peer->out);
    free(peer);
}

/* Sends; what the socket does not take is kept, at most one burst or one read's answers. */
static void send_out(Peer *peer, const char *bytes, size_t size) {
    ssize_t sent = send(peer->fd, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    size_t left = size - (sent > 0 ? (size_t)sent : 0);
    if (!left)
        return;
    peer->out = realloc(peer->out, peer->out_end + left);
    memcpy(peer->out + peer->out_end, bytes + size - left, left);
    peer->out_end += left;
    watch(peer, EPOLL_CTL_MOD);
}

static void send_rest(Peer *peer) {
    ssize_t sent = send(peer->fd, peer->out + peer->out_at, peer->out_end - peer->out_at, MSG_DONTWAIT | MSG_NOSIGNAL);
    peer->out_at += sent > 0 ? (size_t)sent : 0;
    if (peer->out_at == peer->out_end) {
        peer->out_at = peer->out_end = 0;
        watch(peer, EPOLL_CTL_MOD);
    }
}

static void pump(Peer *peer) {
    while (peer->room > 0 && !peer->out_end && !forward) {
        long count = peer->room < BURST ? peer->room : BURST;
        for (long at = 0; at < count; at++)
            put_frame(burst + at * FRAME, body);
        peer->room -= count;
        send_out(peer, burst, (size_t)(count * FRAME));
    }
}

static void answer(const char *bytes, size_t size) {
    if (answers_end + size > sizeof answers)
        exit(3);                /* cannot be: an answer is shorter than what it answers, or there are 16 KiB to it */
    memcpy(answers + answers_end, bytes, size);
    answers_end += size;
}

static void answer_ok(void) { answer("\0\0\0\6\0\0\0\0OK", 10); }

static void deliver(const char *bytes, size_t size) {
    char frame[FRAME];
    if (!subscriber || subscriber->out_end || size != BODY)
        return;
    put_frame(frame, bytes);
    send_out(subscriber, frame, FRAME);
}

/* Returns how many of the bytes are done. */
static size_t read_v2(Peer *peer, const char *from, size_t size) {
    const char *at = from, *end = from + size;
    if (!peer->greeted) {
        if (size < 4)
            return 0;
        peer->greeted = true;
        at += 4;
    }
    while (at < end) {
        if (peer->skip) {
            size_t part = (size_t)(end - at) < peer->skip ? (size_t)(end - at) : peer->skip;
            at += part;
            peer->skip -= part;
            if (!peer->skip)
                answer_ok();
            continue;
        }
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        if (!line_end)
            break;
        if (*at == 'P' || *at == 'M' || *at == 'I') {       /* PUB, MPUB, IDENTIFY */
            uint32_t bytes;
            if (end - line_end < 5)
                break;
            memcpy(&bytes, line_end + 1, 4);
            bytes = ntohl(bytes);
            if (forward && *at == 'P') {
                if ((size_t)(end - line_end - 5) < bytes)
                    break;
                deliver(line_end + 5, bytes);
            }
            peer->skip = bytes;
            at = line_end + 5;
            continue;
        }
        if (*at == 'F') {
            peer->room++;
        } else if (*at == 'R') {
            long rdy = atol(at + 4);
            peer->room += rdy - peer->rdy;
            peer->rdy = rdy;
        } else if (*at == 'S') {
            subscriber = peer;
            answer_ok();
        }
        at = line_end + 1;
    }
    return (size_t)(at - from);
}

static size_t read_http(const char *from, size_t size) {
    static const char ok[] = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 2\r\n\r\nOK";
    static const char length_name[] = "\r\ncontent-length:";
    size_t done = 0;
    while (done < size) {
        const char *head_end = memmem(from + done, size - done, "\r\n\r\n", 4);
        size_t body = 0;
        if (!head_end)
            break;
        for (const char *at = from + done; (at = memmem(at, (size_t)(head_end - at), "\r\n", 2)); at += 2)
            if (!strncasecmp(at, length_name, sizeof length_name - 1))
                body = strtoul(at + sizeof length_name - 1, NULL, 10);
        size_t whole = (size_t)(head_end + 4 - (from + done)) + body;
        if (size - done < whole)
            break;
        answer(ok, sizeof ok - 1);
        done += whole;
    }
    return done;
}

static void take_input(Peer *peer) {
    char *from = area + KEPT_MAX - peer->kept_bytes;
    ssize_t got = recv(peer->fd, area + KEPT_MAX, AREA, MSG_DONTWAIT);
    if (got <= 0) {
        drop(peer);
        return;
    }
    if (peer->kept_bytes)
        memcpy(from, peer->kept, peer->kept_bytes);
    size_t size = peer->kept_bytes + (size_t)got;
    size_t done = peer->http ? read_http(from, size) : read_v2(peer, from, size);
    peer->kept_bytes = size - done;
    if (peer->kept_bytes > KEPT_MAX) {
        drop(peer);
        return;
    }
    if (peer->kept_bytes) {
        peer->kept = realloc(peer->kept, peer->kept_bytes);
        memcpy(peer->kept, from + done, peer->kept_bytes);
    }
    if (answers_end)
        send_out(peer, answers, answers_end);
    answers_end = 0;
    pump(peer);
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
    watch(peer, EPOLL_CTL_ADD);
}

static void take_connection(const Peer *listener) {
    int on = 1, fd = accept(listener->fd, NULL, NULL);
    if (fd < 0)
        return;
    Peer *peer = calloc(1, sizeof *peer);
    peer->fd = fd;
    peer->http = listener->http;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    watch(peer, EPOLL_CTL_ADD);
}

int main(int argc, char **argv) {
    static const char tcp[] = "--tcp-address=", http[] = "--http-address=";
    struct epoll_event events[MAX_EVENTS];
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    poll_fd = epoll_create1(0);
    memset(body, 'x', sizeof body);
    for (int at = 1; at < argc; at++) {
        if (!strncmp(argv[at], tcp, sizeof tcp - 1))
            listen_on(argv[at] + sizeof tcp - 1, false);
        if (!strncmp(argv[at], http, sizeof http - 1))
            listen_on(argv[at] + sizeof http - 1, true);
        forward |= !strcmp(argv[at], "--forward");
    }
    for (;;) {
        int found = epoll_wait(poll_fd, events, MAX_EVENTS, -1);
        for (int at = 0; at < found; at++) {
            Peer *peer = events[at].data.ptr;
            if (peer->listens) {
                take_connection(peer);
                continue;
            }
            if (events[at].events & EPOLLOUT) {
                send_rest(peer);
                pump(peer);
            }
            if (events[at].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
                take_input(peer);
        }
    }
}
