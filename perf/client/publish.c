/* Publishing: every connection keeps up to `window` requests unanswered. Each has a thread, or `threads` share them. */
#include "conn.h"
#include "load.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

enum { JOINED_MAX = 1024, IN_BYTES = 65536, MAX_EVENTS = 64 };

char *make_publish(const Load *load, long *size) {
    char *bytes = malloc(256 + (size_t)load->batch * ((size_t)load->size + 4)), *to = bytes;
    if (!bytes)
        fail("no memory");
    to += sprintf(to, "%s %s\n", load->batch == 1 ? "PUB" : "MPUB", load->topic);
    if (load->batch > 1) {
        to = put_u32(to, (uint32_t)(4 + load->batch * (load->size + 4)));
        to = put_u32(to, (uint32_t)load->batch);
    }
    for (int at = 0; at < load->batch; at++) {
        to = put_u32(to, (uint32_t)load->size);
        memset(to, 'x', (size_t)load->size);
        to += load->size;
    }
    *size = to - bytes;
    return bytes;
}

/* The request, as often behind the other as one write may need it. */
static char *make_requests(const Load *load, long *size) {
    long copies = load->joined ? (load->window < JOINED_MAX ? load->window : JOINED_MAX) : 1;
    char *requests = make_publish(load, size);
    requests = realloc(requests, (size_t)(copies * *size));
    if (!requests)
        fail("no memory");
    for (long at = 1; at < copies; at++)
        memcpy(requests + at * *size, requests, (size_t)*size);
    return requests;
}

static atomic_long left, answered;
static _Atomic int64_t last_ns;
static char *requests;
static long request_size;

/* Sends what is due on a connection: until the window is full or all messages are sent. */
static void send_due(Conn *c, const Load *load) {
    while (c->open < load->window) {
        long due = load->joined ? load->window - c->open : 1;
        due = due < JOINED_MAX ? due : JOINED_MAX;
        if (atomic_fetch_sub(&left, due * load->batch) <= 0)
            return;
        conn_send(c, requests, (size_t)(due * request_size));
        c->open += due;
    }
}

static void publish(const Load *load, int at) {
    Conn conns[MAX_THREADS];
    struct epoll_event events[MAX_EVENTS];
    Frame frame;
    int poll = poll_make(), count = 0;
    long open = 0;
    for (; at < load->conns; at += load->threads, count++) {
        conn_open(&conns[count], load->port, IN_BYTES);
        conn_hello(&conns[count]);
        poll_add(poll, &conns[count]);
    }
    int64_t now = threads_ready(), until = seconds_from(now, load->seconds);
    for (int of = 0; of < count; of++) {
        send_due(&conns[of], load);
        open += conns[of].open;
    }
    while (open) {
        int ready = epoll_wait(poll, events, MAX_EVENTS, 1000 * ANSWER_SECONDS);
        if (ready == 0)
            fail("no answer in %d s", ANSWER_SECONDS);
        for (int of = 0; of < ready; of++) {
            Conn *c = events[of].data.ptr;
            open -= c->open;
            conn_flush(c);
            if (events[of].events & ~(uint32_t)EPOLLOUT)
                conn_receive(c);
            for (; conn_frame(c, &frame); c->open--)
                atomic_fetch_add(&answered, load->batch);
            now = now_ns();
            if (now < until)
                send_due(c, load);
            poll_update(poll, c);
            open += c->open;
        }
    }
    if (now > last_ns)
        last_ns = now;
    for (int of = 0; of < count; of++)
        conn_close(&conns[of]);
}

void run_pub(const Load *load) {
    left = load->count ? load->count : INT64_MAX;
    requests = make_requests(load, &request_size);
    run_threads(load, publish);
    print_rate("pub", load, answered, threads_began(), last_ns);
    free(requests);
}
