/* The load client of the comparison: `rivals` alone prints its modes. One thread, so that it costs each server the same. */
#include "rival.h"
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

static const char usage[] =
    "rivals MODE -P PROTOCOL -p PORT [options]: drives a message server on 127.0.0.1, prints a line of JSON\n"
    "  setup                                 creates the queue\n"
    "  pub   -c CONNECTIONS -b BATCH -w WINDOW   BATCH messages in one write, WINDOW of those without an answer\n"
    "  sub   -c CONNECTIONS -w WINDOW -n COUNT   receives and acknowledges COUNT messages, WINDOW of them unacknowledged\n"
    "  all: -P nsq, redis, beanstalk, nats, rabbit; -t SECONDS (at most), -n COUNT, -s SIZE, -T TOPIC, -d (durable)\n";

enum { EVENTS = 64, IN_BYTES = 262144, QUIET_MS = 10000, REQUEST_MORE = 256 };     /* of a message beside its body */

static const Protocol *const PROTOCOLS[] = {&NSQ, &REDIS, &BEANSTALK, &NATS, &RABBIT};

void wait_for_input(Peer *peer) {
    struct pollfd wait = {.fd = peer->conn.fd, .events = POLLIN};
    for (size_t had = peer->conn.in_end - peer->conn.in_at; peer->conn.in_end - peer->conn.in_at == had;) {
        if (poll(&wait, 1, 1000 * ANSWER_SECONDS) <= 0)
            fail("no answer in %d s", ANSWER_SECONDS);
        conn_flush(&peer->conn);
        conn_receive(&peer->conn);
    }
}

bool line_at(const Peer *peer, size_t from, const char **line, size_t *size) {
    size_t room;
    const char *begin = input(peer, &room), *end;
    if (from >= room || !(end = memchr(begin + from, '\n', room - from)))
        return false;
    *line = begin + from;
    *size = (size_t)(end - *line);
    *size -= *size && end[-1] == '\r';
    return true;
}

void expect_line(Peer *peer, const char *start) {
    const char *line;
    size_t size, room;
    while (!line_at(peer, 0, &line, &size))
        wait_for_input(peer);
    if (size < strlen(start) || memcmp(line, start, strlen(start)))
        fail("expected %s: %.*s", start, (int)size, line);
    peer->conn.in_at += (size_t)((const char *)memchr(line, '\n', (size_t)-1 >> 1) + 1 - input(peer, &room));
}

static void print_rate(const char *mode, const Work *work, long messages, int64_t began_ns, int64_t ended_ns) {
    struct rusage used;
    double seconds = (double)(ended_ns - began_ns) / 1e9;
    getrusage(RUSAGE_SELF, &used);
    double cpu = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec)
               + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    printf("{\"mode\": \"%s\", \"connections\": %d, \"messages\": %ld, \"seconds\": %.6f, \"client_cpu_s\": %.3f}\n",
           mode, work->conns, messages, seconds, cpu);
}

static Peer *open_peers(const Protocol *protocol, const Work *work, int poll) {
    Peer *peers = calloc((size_t)work->conns, sizeof *peers);
    if (!peers)
        fail("no memory");
    for (int at = 0; at < work->conns; at++) {
        Peer *peer = &peers[at];
        peer->number = at;
        peer->acks = malloc(ACKS_ROOM);
        peer->confirmed = calloc(1, UNCONFIRMED_MAX);
        if (!peer->acks || !peer->confirmed)
            fail("no memory");
        conn_open(&peer->conn, work->port, IN_BYTES);
        protocol->hello(peer, work);
        poll_add(poll, &peer->conn);
    }
    return peers;
}

static void close_peers(Peer *peers, const Work *work) {
    for (int at = 0; at < work->conns; at++) {
        free(peers[at].request);
        free(peers[at].acks);
        free(peers[at].confirmed);
        conn_finish(&peers[at].conn);
    }
    free(peers);
}

/* Flushes and reads a connection that an event names. */
static Peer *serve(struct epoll_event *event) {
    Peer *peer = event->data.ptr;
    conn_flush(&peer->conn);
    if (event->events & ~(uint32_t)EPOLLOUT)
        conn_receive(&peer->conn);
    return peer;
}

static void make_requests(const Protocol *protocol, const Work *work, Peer *peers) {
    char *body = malloc((size_t)work->size);
    if (!body)
        fail("no memory");
    memset(body, 'x', (size_t)work->size);
    for (Peer *peer = peers; peer < peers + work->conns; peer++) {
        peer->request = malloc((size_t)(work->batch + 1) * ((size_t)work->size + REQUEST_MORE));
        if (!peer->request)
            fail("no memory");
        peer->request_size = (size_t)(protocol->put(peer->request, peer, work, body) - peer->request);
    }
    free(body);
}

static void publish(const Protocol *protocol, const Work *work) {
    int poll = poll_make();
    Peer *peers = open_peers(protocol, work, poll);
    struct epoll_event events[EVENTS];
    make_requests(protocol, work, peers);
    long left = work->count ? work->count : INT64_MAX, answered = 0, open = 0;
    int64_t began = now_ns(), now = began, until = seconds_from(began, work->seconds);
    for (int at = 0; at < work->conns; at++)
        events[at % EVENTS].data.ptr = &peers[at];
    int count = work->conns < EVENTS ? work->conns : EVENTS;
    for (bool first = true;; first = false) {
        for (int at = 0; at < count; at++) {
            Peer *peer = events[at].data.ptr;
            if (!first) {
                serve(&events[at]);
                long confirmed = protocol->answers(peer, work);
                answered += confirmed;
                open -= confirmed;
                peer->conn.open -= confirmed;
                now = now_ns();
            }
            while (now < until && left > 0 && peer->conn.open <= (long)(work->window - 1) * work->batch) {
                conn_send(&peer->conn, peer->request, peer->request_size);
                peer->conn.open += work->batch;
                open += work->batch;
                left -= work->batch;
            }
            poll_update(poll, &peer->conn);
        }
        if (!open)
            break;
        count = epoll_wait(poll, events, EVENTS, 1000 * ANSWER_SECONDS);
        if (count <= 0)
            fail("no answer in %d s", ANSWER_SECONDS);
    }
    print_rate("pub", work, answered, began, now);
    close_peers(peers, work);
}

static void consume(const Protocol *protocol, const Work *work) {
    int poll = poll_make();
    struct epoll_event events[EVENTS];
    Peer *peers = open_peers(protocol, work, poll);
    int64_t began = now_ns();
    long consumed = 0;
    for (int at = 0; at < work->conns; at++)
        protocol->subscribe(&peers[at], work);
    while (consumed < work->count) {
        int count = epoll_wait(poll, events, EVENTS, QUIET_MS);
        if (count <= 0)
            fail("%ld of %ld messages", consumed, work->count);
        for (int at = 0; at < count; at++) {
            Peer *peer = serve(&events[at]);
            consumed += protocol->deliver(peer, work, work->count - consumed);
            poll_update(poll, &peer->conn);
        }
    }
    print_rate("sub", work, consumed, began, now_ns());
    close_peers(peers, work);
}

static void set_up(const Protocol *protocol, const Work *work) {
    Peer peer = {.number = 0};
    conn_open(&peer.conn, work->port, IN_BYTES);
    protocol->hello(&peer, work);
    protocol->setup(&peer, work);
    conn_finish(&peer.conn);
    puts("{\"mode\": \"setup\"}");
}

int main(int argc, char **argv) {
    Work work = {.conns = 1, .size = 200, .batch = 1, .window = 1, .seconds = 5, .topic = "load"};
    const Protocol *protocol = NULL;
    const char *mode = argc > 1 ? argv[1] : "";
    int option;
    optind = 2;
    while ((option = getopt(argc, argv, "P:p:c:s:b:w:n:t:T:d")) != -1)
        switch (option) {
        case 'P':
            for (size_t at = 0; at < sizeof PROTOCOLS / sizeof *PROTOCOLS; at++)
                if (!strcmp(PROTOCOLS[at]->name, optarg))
                    protocol = PROTOCOLS[at];
            break;
        case 'p': work.port = atoi(optarg); break;
        case 'c': work.conns = atoi(optarg); break;
        case 's': work.size = atoi(optarg); break;
        case 'b': work.batch = atoi(optarg); break;
        case 'w': work.window = atoi(optarg); break;
        case 'n': work.count = atol(optarg); break;
        case 't': work.seconds = atof(optarg); break;
        case 'T': work.topic = optarg; break;
        case 'd': work.durable = true; break;
        default: fputs(usage, stderr); return 2;
        }
    if (!protocol || work.conns < 1 || work.conns > EVENTS || work.size < 1 || work.size > 65536 || work.batch < 1
        || work.window < 1 || (long)work.batch * work.window >= UNCONFIRMED_MAX || work.count < 0
        || strlen(work.topic) > 32) {
        fputs(usage, stderr);
        return 2;
    }
    if (!strcmp(mode, "setup"))
        set_up(protocol, &work);
    else if (!strcmp(mode, "pub"))
        publish(protocol, &work);
    else if (!strcmp(mode, "sub"))
        consume(protocol, &work);
    else {
        fputs(usage, stderr);
        return 2;
    }
    return 0;
}
