/* Publishing over HTTP: keep-alive connections, one request at a time on each. */
#define _GNU_SOURCE
#include "conn.h"
#include "http.h"
#include "load.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>

enum { MAX_EVENTS = 64 };

size_t http_answer_bytes(char *from, size_t size) {
    char *end = memmem(from, size, "\r\n\r\n", 4);
    if (!end)
        return 0;
    *end = 0;
    char *length = strcasestr(from, "\r\ncontent-length:");
    errno = 0;
    if (!length)
        fail("an answer without its length");
    size_t bytes = (size_t)(end + 4 - from) + strtoul(length + 17, NULL, 10);
    *end = '\r';
    return size < bytes ? 0 : bytes;
}

/* Takes one whole answer, which must be 200; false: it is incomplete. */
static bool take_answer(Conn *c) {
    char *from = c->in + c->in_at;
    size_t size = http_answer_bytes(from, c->in_end - c->in_at);
    if (!size)
        return false;
    errno = 0;
    if (memcmp(from, "HTTP/1.1 200", 12))
        fail("answered with %.*s", (int)(strchr(from, '\r') - from), from);
    c->in_at += size;
    return true;
}

static char *make_post(const Load *load, size_t *size) {
    char *bytes = malloc(512 + (size_t)load->size);
    if (!bytes)
        fail("no memory");
    int head = sprintf(bytes, "POST /pub?topic=%s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Length: %d\r\n\r\n",
                       load->topic, load->port, load->size);
    memset(bytes + head, 'x', (size_t)load->size);
    *size = (size_t)(head + load->size);
    return bytes;
}

void run_http_pub(const Load *load) {
    size_t size;
    char *request = make_post(load, &size);
    Conn *conns = calloc((size_t)load->conns, sizeof *conns);
    struct epoll_event events[MAX_EVENTS];
    long sent = 0, answered = 0, most = load->count ? load->count : INT64_MAX;
    int poll = poll_make();
    if (!conns)
        fail("no memory");
    for (int at = 0; at < load->conns; at++) {
        conn_open(&conns[at], load->port, 4096);
        poll_add(poll, &conns[at]);
    }
    int64_t began = now_ns(), until = seconds_from(began, load->seconds), last = began;
    for (int at = 0; at < load->conns && sent < most; at++, sent++)
        conn_send(&conns[at], request, size);
    while (answered < sent) {
        int count = epoll_wait(poll, events, MAX_EVENTS, 1000 * ANSWER_SECONDS);
        if (count == 0)
            fail("no answer in %d s", ANSWER_SECONDS);
        last = now_ns();
        for (int at = 0; at < count; at++) {
            Conn *c = events[at].data.ptr;
            conn_flush(c);
            if (events[at].events & ~(uint32_t)EPOLLOUT)
                conn_receive(c);
            while (take_answer(c)) {
                answered++;
                if (last < until && sent < most) {
                    conn_send(c, request, size);
                    sent++;
                }
            }
            poll_update(poll, c);
        }
    }
    print_rate("http-pub", load, answered, began, last);
    for (int at = 0; at < load->conns; at++)
        conn_close(&conns[at]);
    free(conns);
    free(request);
}
