/* The floor of the daemon's load: what the kernel's loopback and one core allow any nsqd on this machine. No queue.
 *
 * It skips the bodies of PUB and MPUB and answers OK; it frames the same body again and again for a subscriber, as long
 * as RDY allows, and counts its FINs; it answers every HTTP request with 200. With --forward the body of a PUB goes to
 * a subscriber at once: the floor of PUB to delivery.
 */
#define _GNU_SOURCE
#include "peer.h"
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { KEPT_MAX = 65536, BODY = 200, FRAME = MESSAGE_HEAD + BODY, BURST = 512 };

typedef struct {
    Peer base;
    size_t skip;                /* bytes of a body still to come; its OK follows */
    long room;                  /* RDY - in flight */
    long rdy;
    char *kept;                 /* owned: the head of an unfinished command */
    size_t kept_bytes;
    char *out;                  /* owned: what the socket did not take */
    size_t out_at, out_end;
} Skipper;

static char area[KEPT_MAX + AREA];          /* what is kept of a peer is put right before its next bytes */
static char answers[AREA];                  /* what one read is answered with */
static size_t answers_end;
static char burst[BURST * FRAME];
static char body[BODY];
static uint64_t next_id = 1;
static Skipper *subscriber;

static void put_message(char *to, const char *bytes) {
    put_message_head(to, BODY, next_id++);
    memcpy(to + MESSAGE_HEAD, bytes, BODY);
}

static void drop(Skipper *peer) {
    if (subscriber == peer)
        subscriber = NULL;
    close(peer->base.fd);
    free(peer->kept);
    free(peer->out);
    free(peer);
}

/* Sends; what the socket does not take is kept, at most one burst or one read's answers. */
static void send_out(Skipper *peer, const char *bytes, size_t size) {
    ssize_t sent = send(peer->base.fd, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    size_t left = size - (sent > 0 ? (size_t)sent : 0);
    if (!left)
        return;
    peer->out = realloc(peer->out, peer->out_end + left);
    if (!peer->out)
        exit(3);
    memcpy(peer->out + peer->out_end, bytes + size - left, left);
    peer->out_end += left;
    watch(&peer->base, peer->out_end > 0);
}

static void send_rest(Skipper *peer) {
    ssize_t sent = send(peer->base.fd, peer->out + peer->out_at, peer->out_end - peer->out_at, MSG_DONTWAIT | MSG_NOSIGNAL);
    peer->out_at += sent > 0 ? (size_t)sent : 0;
    if (peer->out_at == peer->out_end) {
        peer->out_at = peer->out_end = 0;
        watch(&peer->base, peer->out_end > 0);
    }
}

static void pump(Skipper *peer) {
    while (peer->room > 0 && !peer->out_end && !forward) {
        long count = peer->room < BURST ? peer->room : BURST;
        for (long at = 0; at < count; at++)
            put_message(burst + at * FRAME, body);
        peer->room -= count;
        send_out(peer, burst, (size_t)(count * FRAME));
    }
}

static void answer(const char *bytes, size_t size) {
    if (answers_end + size > sizeof answers)
        exit(4);                /* cannot be: an answer is shorter than what it answers, or there are 16 KiB to it */
    memcpy(answers + answers_end, bytes, size);
    answers_end += size;
}

static void answer_ok(void) { answer("\0\0\0\6\0\0\0\0OK", 10); }

static void deliver(const char *bytes, size_t size) {
    char frame[FRAME];
    if (!subscriber || subscriber->out_end || size != BODY)
        return;
    put_message(frame, bytes);
    send_out(subscriber, frame, FRAME);
}

/* Returns how many of the bytes are done. */
static size_t read_v2(Skipper *peer, const char *from, size_t size) {
    const char *at = from, *end = from + size;
    if (!peer->base.greeted) {
        if (size < 4)
            return 0;
        peer->base.greeted = true;
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
            if (end - line_end < 5)
                break;
            uint32_t bytes = get_u32(line_end + 1);
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

static void readable(Peer *base) {
    Skipper *peer = (Skipper *)base;
    char *from = area + KEPT_MAX - peer->kept_bytes;
    ssize_t received = recv(peer->base.fd, area + KEPT_MAX, AREA, MSG_DONTWAIT);
    if (received <= 0) {
        drop(peer);
        return;
    }
    if (peer->kept_bytes)
        memcpy(from, peer->kept, peer->kept_bytes);
    size_t size = peer->kept_bytes + (size_t)received;
    size_t done = peer->base.http ? read_http(from, size) : read_v2(peer, from, size);
    peer->kept_bytes = size - done;
    if (peer->kept_bytes > KEPT_MAX) {
        drop(peer);
        return;
    }
    if (peer->kept_bytes) {
        peer->kept = realloc(peer->kept, peer->kept_bytes);
        if (!peer->kept)
            exit(3);
        memcpy(peer->kept, from + done, peer->kept_bytes);
    }
    if (answers_end)
        send_out(peer, answers, answers_end);
    answers_end = 0;
    pump(peer);
}

static void writable(Peer *base) {
    Skipper *peer = (Skipper *)base;
    send_rest(peer);
    pump(peer);
}

static void start(void) { memset(body, 'x', sizeof body); }

const Floor skipping = {sizeof(Skipper), start, readable, writable};
