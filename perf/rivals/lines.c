/* The servers whose protocols are made of lines: Redis Streams, beanstalkd, NATS JetStream. */
#define _GNU_SOURCE
#include "rival.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ASK = 500 };             /* messages that one request of a consumer asks for */

static void send_acks(Peer *peer, const char *end) {
    if (end > peer->acks)
        conn_send(&peer->conn, peer->acks, (size_t)(end - peer->acks));
}

/* The end of the acknowledgements once there is room for another; sends those before. */
static char *room_for(Peer *peer, char *end, size_t size) {
    if (end + size <= peer->acks + ACKS_ROOM)
        return end;
    send_acks(peer, end);
    return peer->acks;
}

/* ---- Redis: XADD; XREADGROUP and XACK ---- */

static char *redis_word(char *to, const char *word, size_t size) {
    to += sprintf(to, "$%zu\r\n", size);
    memcpy(to, word, size);
    memcpy(to + size, "\r\n", 2);
    return to + size + 2;
}

static char *redis_words(char *to, const char *const *words, size_t count) {
    to += sprintf(to, "*%zu\r\n", count);
    for (size_t at = 0; at < count; at++)
        to = redis_word(to, words[at], strlen(words[at]));
    return to;
}

static void redis_setup(Peer *peer, const Work *work) {
    conn_printf(&peer->conn, "XGROUP CREATE %s g 0 MKSTREAM\r\n", work->topic);
    expect_line(peer, "+OK");
}

static void redis_hello(Peer *peer, const Work *work) { (void)peer, (void)work; }

static char *redis_put(char *to, const Peer *peer, const Work *work, const char *body) {
    (void)peer;
    for (int at = 0; at < work->batch; at++) {
        to += sprintf(to, "*5\r\n");
        to = redis_word(to, "XADD", 4);
        to = redis_word(to, work->topic, strlen(work->topic));
        to = redis_word(to, "*", 1);
        to = redis_word(to, "b", 1);
        to = redis_word(to, body, (size_t)work->size);
    }
    return to;
}

static long redis_answers(Peer *peer, const Work *work) {
    const char *line;
    size_t size, at = 0;
    long found = 0;
    (void)work;
    while (line_at(peer, at, &line, &size)) {       /* $15, then an id */
        if (line[0] != '$' && !peer->state)
            fail("Redis: %.*s", (int)size, line);
        found += peer->state;
        peer->state = !peer->state;
        at += size + 2;
    }
    peer->conn.in_at += at;
    return found;
}

static void redis_ask(Peer *peer, const Work *work) {
    char request[256], ask[16], name[16];
    sprintf(ask, "%d", ASK);
    sprintf(name, "c%d", peer->number);
    const char *words[] = {"XREADGROUP", "GROUP", "g", name, "COUNT", ask, "STREAMS", work->topic, ">"};
    conn_send(&peer->conn, request, (size_t)(redis_words(request, words, 9) - request));
}

static void redis_subscribe(Peer *peer, const Work *work) {
    for (int at = 0; at * ASK < work->window; at++)
        redis_ask(peer, work);
}

static long number_of(const char *line) { return strtol(line + 1, NULL, 10); }

/* Sends what was collected: XACK of the answer's ids, and a request for more. */
static void redis_ack(Peer *peer, const Work *work, long count, const char *end) {
    char head[128], *to = head + sprintf(head, "*%ld\r\n", count + 3);
    to = redis_word(to, "XACK", 4);
    to = redis_word(to, work->topic, strlen(work->topic));
    to = redis_word(to, "g", 1);
    conn_send(&peer->conn, head, (size_t)(to - head));
    send_acks(peer, end);
    redis_ask(peer, work);
}

/* States within an answer: 0 its first line, 1 the stream, 2 its name, 3 the number of entries, then for each entry
 * 4 its array, 5 its id, 6 its fields, 7 a name, 8 a value. peer->tag: bytes of ids collected in acks.
 */
static long redis_deliver(Peer *peer, const Work *work, long left) {
    const char *line;
    size_t size, at = 0, room;
    long found = 0;
    (void)left;
    while (line_at(peer, at, &line, &size)) {
        const char *begin = input(peer, &room);
        size_t whole = size + 2;
        if (line[0] == '$') {
            whole += (size_t)number_of(line) + 2;
            if (at + whole > room)
                break;
        }
        if (peer->state == 0) {
            if (line[0] == '-')
                fail("Redis: %.*s", (int)size, line);
            if (line[0] == '*' && line[1] != '-')
                peer->state = 1;        /* `:` answers an XACK; `*-1` means nothing is left */
        } else if (peer->state == 3) {
            peer->entries = peer->taken = number_of(line);
            peer->tag = 0;
            peer->state = 4;
        } else if (peer->state == 5) {
            memcpy(peer->acks + peer->tag, begin + at, whole);
            peer->tag += whole;
            peer->state = 6;
        } else if (peer->state == 8) {
            found++;
            peer->state = --peer->entries ? 4 : 0;
            if (!peer->entries)
                redis_ack(peer, work, peer->taken, peer->acks + peer->tag);
        } else {
            peer->state++;
        }
        at += whole;
    }
    peer->conn.in_at += at;
    return found;
}

const Protocol REDIS = {"redis", redis_setup, redis_hello, redis_put, redis_answers, redis_subscribe, redis_deliver};

/* ---- beanstalkd: put; reserve and delete ---- */

static void beanstalk_setup(Peer *peer, const Work *work) { (void)peer, (void)work; }

static void beanstalk_hello(Peer *peer, const Work *work) {
    conn_printf(&peer->conn, "use %s\r\nwatch %s\r\nignore default\r\n", work->topic, work->topic);
    expect_line(peer, "USING");
    expect_line(peer, "WATCHING");
    expect_line(peer, "WATCHING");
}

static char *beanstalk_put(char *to, const Peer *peer, const Work *work, const char *body) {
    (void)peer;
    for (int at = 0; at < work->batch; at++) {
        to += sprintf(to, "put 1024 0 60 %d\r\n", work->size);
        memcpy(to, body, (size_t)work->size);
        memcpy(to + work->size, "\r\n", 2);
        to += work->size + 2;
    }
    return to;
}

static long beanstalk_answers(Peer *peer, const Work *work) {
    const char *line;
    size_t size, at = 0;
    long found = 0;
    (void)work;
    for (; line_at(peer, at, &line, &size); at += size + 2, found++)
        if (size < 9 || memcmp(line, "INSERTED ", 9))
            fail("beanstalkd: %.*s", (int)size, line);
    peer->conn.in_at += at;
    return found;
}

static void beanstalk_subscribe(Peer *peer, const Work *work) {
    for (; peer->asked < work->window && peer->asked * work->conns < work->count; peer->asked++)
        conn_send(&peer->conn, "reserve\r\n", 9);
}

/* A reserve that waits for a job blocks the deletes behind it, so there are only as many as there are jobs. */
static long beanstalk_deliver(Peer *peer, const Work *work, long left) {
    const char *line;
    size_t size, at = 0, room;
    long found = 0;
    char *to = peer->acks;
    (void)work;
    while (line_at(peer, at, &line, &size)) {
        if (size > 9 && !memcmp(line, "RESERVED ", 9)) {
            char *end;
            unsigned long long id = strtoull(line + 9, &end, 10);
            size_t whole = size + 2 + strtoul(end, NULL, 10) + 2;
            input(peer, &room);
            if (at + whole > room)
                break;
            to = room_for(peer, to, 64);
            to += sprintf(to, "delete %llu\r\n", id);
            peer->asked--;
            found++;
            if (left - found > peer->asked) {
                to += sprintf(to, "reserve\r\n");
                peer->asked++;
            }
            at += whole;
            continue;
        }
        if (size != 7 || memcmp(line, "DELETED", 7))
            fail("beanstalkd: %.*s", (int)size, line);
        at += size + 2;
    }
    peer->conn.in_at += at;
    send_acks(peer, to);
    return found;
}

const Protocol BEANSTALK = {"beanstalk", beanstalk_setup, beanstalk_hello, beanstalk_put, beanstalk_answers,
                            beanstalk_subscribe, beanstalk_deliver};

/* ---- NATS JetStream: publish with a reply subject; pull consumer with explicit acknowledgements ---- */

static void nats_request(Peer *peer, const char *subject, const char *json) {
    const char *line;
    size_t size;
    conn_printf(&peer->conn, "PUB %s _INBOX.s%d %zu\r\n%s\r\n", subject, peer->number, strlen(json), json);
    expect_line(peer, "MSG ");
    while (!line_at(peer, 0, &line, &size))
        wait_for_input(peer);
    if (memmem(line, size, "\"error\"", 7))
        fail("JetStream: %.*s", (int)size, line);
    peer->conn.in_at += size + 2;
}

static void nats_setup(Peer *peer, const Work *work) {
    char subject[128], json[384];
    sprintf(subject, "$JS.API.STREAM.CREATE.%s", work->topic);
    sprintf(json, "{\"name\":\"%s\",\"subjects\":[\"%s\"],\"storage\":\"%s\",\"retention\":\"limits\",\"num_replicas\":1}",
            work->topic, work->topic, work->durable ? "file" : "memory");
    nats_request(peer, subject, json);
    sprintf(subject, "$JS.API.CONSUMER.DURABLE.CREATE.%s.c", work->topic);
    sprintf(json, "{\"stream_name\":\"%s\",\"config\":{\"durable_name\":\"c\",\"ack_policy\":\"explicit\","
            "\"deliver_policy\":\"all\",\"max_ack_pending\":20000}}", work->topic);
    nats_request(peer, subject, json);
}

static void nats_hello(Peer *peer, const Work *work) {
    (void)work;
    expect_line(peer, "INFO ");
    conn_printf(&peer->conn, "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"name\":\"load\"}\r\n"
                "SUB _INBOX.s%d 1\r\nPING\r\n", peer->number);
    expect_line(peer, "PONG");
}

static char *nats_put(char *to, const Peer *peer, const Work *work, const char *body) {
    for (int at = 0; at < work->batch; at++) {
        to += sprintf(to, "PUB %s _INBOX.s%d %d\r\n", work->topic, peer->number, work->size);
        memcpy(to, body, (size_t)work->size);
        memcpy(to + work->size, "\r\n", 2);
        to += work->size + 2;
    }
    return to;
}

/* Answers PING, which may come at any time. False: the line is another one. */
static bool nats_ping(Peer *peer, const char *line, size_t size) {
    if (size != 4 || memcmp(line, "PING", 4))
        return false;
    conn_send(&peer->conn, "PONG\r\n", 6);
    return true;
}

static long nats_answers(Peer *peer, const Work *work) {
    const char *line;
    size_t size, at = 0;
    long found = 0;
    (void)work;
    for (; line_at(peer, at, &line, &size); at += size + 2) {       /* MSG, then JSON */
        if (!peer->state && nats_ping(peer, line, size))
            continue;
        if (peer->state && (size < 10 || memcmp(line, "{\"stream\":", 10)))
            fail("JetStream: %.*s", (int)size, line);
        found += peer->state;
        peer->state = !peer->state;
    }
    peer->conn.in_at += at;
    return found;
}

static void nats_ask(Peer *peer, const Work *work) {
    char json[32];
    int size = sprintf(json, "{\"batch\":%d}", ASK);
    conn_printf(&peer->conn, "PUB $JS.API.CONSUMER.MSG.NEXT.%s.c _INBOX.s%d %d\r\n%s\r\n", work->topic, peer->number, size,
                json);
    peer->asked += ASK;
}

static void nats_subscribe(Peer *peer, const Work *work) {
    while (peer->asked < work->window)
        nats_ask(peer, work);
}

/* MSG <subject> <sid> <reply> <size> */
static long nats_deliver(Peer *peer, const Work *work, long left) {
    const char *line;
    size_t size, at = 0, room;
    long found = 0;
    char *to = peer->acks;
    (void)left;
    while (line_at(peer, at, &line, &size)) {
        if (nats_ping(peer, line, size)) {
            at += size + 2;
            continue;
        }
        const char *last = memrchr(line, ' ', size);
        if (size < 4 || memcmp(line, "MSG ", 4) || !last)
            fail("JetStream: %.*s", (int)size, line);
        const char *reply = (const char *)memrchr(line, ' ', (size_t)(last - line)) + 1;
        size_t whole = size + 2 + strtoul(last + 1, NULL, 10) + 2;
        input(peer, &room);
        if (at + whole > room)
            break;
        to = room_for(peer, to, 512);
        memcpy(to, "PUB ", 4);
        memcpy(to + 4, reply, (size_t)(last - reply));
        to += 4 + (last - reply);
        memcpy(to, " 4\r\n+ACK\r\n", 10);
        to += 10;
        found++;
        peer->asked--;
        at += whole;
    }
    peer->conn.in_at += at;
    send_acks(peer, to);
    while (peer->asked + ASK <= work->window)
        nats_ask(peer, work);
    return found;
}

const Protocol NATS = {"nats", nats_setup, nats_hello, nats_put, nats_answers, nats_subscribe, nats_deliver};
