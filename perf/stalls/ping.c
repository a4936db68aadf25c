/* One kept HTTP connection and a /ping on it every 2 ms, until stdin ends; then a line of JSON with the times.
 *
 * A ping has waited since it was due, not since it could be sent: a stall of a second is 500 pings that waited, not one.
 */
#define _GNU_SOURCE
#include "../load/conn.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_SAMPLES = 1 << 20, IN_BYTES = 4096, LAST_SECONDS = 60 };

static const int64_t EVERY_NS = 2000000;
static const char request[] = "GET /ping HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
static int64_t samples[MAX_SAMPLES];

static int ascending(const void *a, const void *b) {
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

/* Whether the answer is whole; its body may be a failed health check's. */
static bool whole(const char *in, size_t size) {
    const char *end = memmem(in, size, "\r\n\r\n", 4), *length = memmem(in, size, "Content-Length: ", 16);
    return end && length && size >= (size_t)(end + 4 - in) + strtoul(length + 16, NULL, 10);
}

/* Sends a ping and waits for the answer; false: stdin has ended and no answer comes. */
static bool ping(Conn *c) {
    char in[IN_BYTES];
    size_t size = 0;
    int64_t until = 0;
    conn_send(c, request, sizeof request - 1);
    while (!whole(in, size)) {
        struct pollfd both[2] = {{.fd = c->fd, .events = POLLIN}, {.fd = until ? -1 : 0, .events = POLLIN}};
        if (until && now_ns() > until)
            return false;
        if (poll(both, 2, 1000) < 0 && errno != EINTR)
            fail("cannot poll");
        if (both[1].revents)
            until = now_ns() + (int64_t)LAST_SECONDS * 1000000000;
        if (!both[0].revents)
            continue;
        ssize_t got = recv(c->fd, in + size, sizeof in - 1 - size, MSG_DONTWAIT);
        if (got <= 0 && errno != EAGAIN)
            fail("the connection of /ping has ended");
        size += got > 0 ? (size_t)got : 0;
        in[size] = 0;
    }
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

int main(int argc, char **argv) {
    Conn c;
    long count = 0;
    if (argc != 2)
        return 2;
    setpriority(PRIO_PROCESS, 0, -10);          /* where it may: the machine's scheduler is not what is measured */
    conn_open(&c, atoi(argv[1]), IN_BYTES);
    ping(&c);
    puts("ready");
    fflush(stdout);
    bool answered = true;
    for (int64_t due = now_ns(); answered && wait_until(due);) {
        answered = ping(&c);
        for (int64_t now = now_ns(); due <= now && count < MAX_SAMPLES; due += EVERY_NS)
            samples[count++] = now - due;
    }
    qsort(samples, (size_t)count, sizeof *samples, ascending);
    printf("{\"pings\": %ld, \"answered\": %s, \"p50_ms\": %.3f, \"p99_ms\": %.3f, \"max_ms\": %.3f}\n", count,
           answered ? "true" : "false", count ? (double)samples[count / 2] / 1e6 : 0,
           count ? (double)samples[(long)((double)(count - 1) * 0.99)] / 1e6 : 0,
           count ? (double)samples[count - 1] / 1e6 : 0);
    conn_close(&c);
    return 0;
}
