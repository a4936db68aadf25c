/* Publishing over HTTP: keep-alive connections, one request at a time on each. */
#define _GNU_SOURCE
#include "conn.h"
#include "modes.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>

enum { MAX_EVENTS = 64 };

/* Takes one whole answer; false: not there yet. */
static bool take_answer(Conn *c) {
    char *at = c->in + c->in_at, *length;
    size_t have = c->in_end - c->in_at, body = 0;
    char *end = memmem(at, have, "\r\n\r\n", 4);
    if (!end)
        return false;
    errno = 0;
    if (have < 12 || memcmp(at, "HTTP/1.1 200", 12))
        fail("answered with %.*s", (int)(strchr(at, '\r') - at), at);
    *end = 0;
    length = strcasestr(at, "\r\ncontent-length:");
    if (!length)
        fail("an answer without its length");
    body = strtoul(length + 17, NULL, 10);
    *end = '\r';
    if (have < (size_t)(end + 4 - at) + body)
        return false;
    c->in_at += (size_t)(end + 4 - at) + body;
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
    for (int at = 0; at < load->conns; at++) {
        conn_open(&conns[at], load->port, 4096);
        poll_add(poll, &conns[at]);
    }
    int64_t began = now_ns(), until = began + (int64_t)(load->seconds * 1e9), heard = began;
    for (int at = 0; at < load->conns && sent < most; at++, sent++)
        conn_send(&conns[at], request, size);
    while (answered < sent) {
        int found = epoll_wait(poll, events, MAX_EVENTS, 1000 * ANSWER_SECONDS);
        if (found == 0)
            fail("no answer in %d s", ANSWER_SECONDS);
        heard = now_ns();
        for (int at = 0; at < found; at++) {
            Conn *c = events[at].data.ptr;
            conn_flush(c);
            if (events[at].events & ~(uint32_t)EPOLLOUT)
                conn_receive(c);
            while (take_answer(c)) {
                answered++;
                if (heard < until && sent < most) {
                    conn_send(c, request, size);
                    sent++;
                }
            }
            poll_update(poll, c);
        }
    }
    print_rate("http-pub", load, answered, began, heard);
    for (int at = 0; at < load->conns; at++)
        conn_close(&conns[at]);
    free(conns);
    free(request);
}
