/* One kept HTTP connection and a /ping on it every 2 ms, until stdin ends; then a line of JSON with the times.
 *
 * A ping has waited since it was due, not since it could be sent: a stall of a second is 500 pings that waited, not one.
 */
#define _GNU_SOURCE
#include "conn.h"
#include "http.h"
#include "load.h"
#include <poll.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MAX_SAMPLES = 1 << 20, IN_BYTES = 4096, LAST_SECONDS = 60 };

static const int64_t EVERY_NS = 2000000;
static const char request[] = "GET /ping HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
static int64_t samples[MAX_SAMPLES];

/* Sends a ping and waits for the answer, whatever its status; false: stdin has ended and no answer comes. */
static bool ping(Conn *c) {
    size_t size;
    int64_t until = 0;
    conn_send(c, request, sizeof request - 1);
    while (!(size = http_answer_bytes(c->in + c->in_at, c->in_end - c->in_at))) {
        struct pollfd both[2] = {{.fd = c->fd, .events = POLLIN}, {.fd = until ? -1 : 0, .events = POLLIN}};
        if (until && now_ns() > until)
            return false;
        if (poll(both, 2, 1000) < 0 && errno != EINTR)
            fail("cannot poll");
        if (both[1].revents)
            until = seconds_from(now_ns(), LAST_SECONDS);
        if (both[0].revents)
            conn_receive(c);
    }
    c->in_at += size;
    return true;
}

/* Waits; false: stdin has ended. */
static bool wait_until(int64_t due) {
    for (int64_t left; (left = due - now_ns()) > 0;) {
        struct timespec wait = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
        struct pollfd in = {.fd = 0, .events = POLLIN};
        if (ppoll(&in, 1, &wait, NULL) > 0)
            return false;
    }
    struct pollfd in = {.fd = 0, .events = POLLIN};
    return poll(&in, 1, 0) == 0;
}

void run_ping(const Load *load) {
    Conn c;
    long count = 0;
    setpriority(PRIO_PROCESS, 0, -10);          /* where it may: the machine's scheduler is not what is measured */
    conn_open(&c, load->port, IN_BYTES);
    ping(&c);
    puts("ready");
    fflush(stdout);
    bool answered = true;
    for (int64_t due = now_ns(); answered && wait_until(due);) {
        answered = ping(&c);
        for (int64_t now = now_ns(); due <= now && count < MAX_SAMPLES; due += EVERY_NS)
            samples[count++] = now - due;
    }
    sort_times(samples, count);
    printf("{\"pings\": %ld, \"answered\": %s, \"p50_ms\": %.3f, \"p99_ms\": %.3f, \"max_ms\": %.3f}\n", count,
           answered ? "true" : "false", (double)time_at(samples, count, 0.5) / 1e6,
           (double)time_at(samples, count, 0.99) / 1e6, (double)time_at(samples, count, 1) / 1e6);
    conn_close(&c);
}
