/* PUB to delivery, on one machine's clock: each body carries the time when it was sent. The rate is open-loop: a slow
 * delivery does not delay the next PUB.
 */
#define _GNU_SOURCE
#include "conn.h"
#include "modes.h"
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SAMPLES = 4000000, LAST_WAIT_MS = 2000 };

static int ascending(const void *a, const void *b) {
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

static double micros_at(const int64_t *samples, long count, double share) {
    return count ? (double)samples[(long)((double)(count - 1) * share)] / 1e3 : 0.0;
}

static long take(Conn *subscriber, int64_t *samples, long count) {
    Frame frame;
    while (conn_frame(subscriber, &frame)) {
        int64_t sent;
        if (frame.type != FRAME_MESSAGE)
            continue;
        memcpy(&sent, frame.data + MESSAGE_BODY_AT, sizeof sent);
        if (count < MAX_SAMPLES)
            samples[count++] = now_ns() - sent;
        char fin[21] = "FIN ";
        memcpy(fin + 4, frame.data + MESSAGE_ID_AT, 16);
        fin[20] = '\n';
        conn_send(subscriber, fin, sizeof fin);
    }
    return count;
}

void run_latency(const Load *load) {
    Load one = *load;
    Frame frame;
    Conn subscriber, publisher;
    long size, sent = 0, count = 0, most = load->count ? load->count : MAX_SAMPLES;
    int64_t *samples = malloc(sizeof *samples * MAX_SAMPLES);
    one.batch = 1;
    char *request = make_publish(&one, &size), *body = request + size - load->size;
    conn_open(&subscriber, load->port, 65536);
    conn_hello(&subscriber);
    conn_printf(&subscriber, "SUB %s %s\n", load->topic, load->channel);
    conn_wait_ok(&subscriber);
    conn_printf(&subscriber, "RDY %d\n", load->rdy);
    conn_open(&publisher, load->port, 65536);
    conn_hello(&publisher);
    poll(NULL, 0, 100);
    int64_t began = now_ns(), due = began, until = began + (int64_t)(load->seconds * 1e9);
    while (sent < most ? due < until || count < sent : count < sent) {
        bool more = due < until && sent < most;
        int64_t left = more ? due - now_ns() : (int64_t)LAST_WAIT_MS * 1000000;
        if (more && left <= 0) {
            int64_t now = now_ns();
            memcpy(body, &now, sizeof now);
            conn_send(&publisher, request, (size_t)size);
            sent++;
            due += (int64_t)(1e9 / load->rate);
            continue;
        }
        struct timespec wait = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
        struct pollfd both[2] = {{.fd = subscriber.fd, .events = POLLIN}, {.fd = publisher.fd, .events = POLLIN}};
        if (ppoll(both, 2, &wait, NULL) == 0 && !more)
            fail("%ld of %ld messages were not delivered", sent - count, sent);
        if (both[0].revents && conn_receive(&subscriber))
            count = take(&subscriber, samples, count);
        if (both[1].revents && conn_receive(&publisher))
            while (conn_frame(&publisher, &frame))
                ;
    }
    qsort(samples, (size_t)count, sizeof *samples, ascending);
    printf("{\"mode\": \"latency\", \"messages\": %ld, \"rdy\": %d, \"rate\": %.0f, \"p50_us\": %.1f, \"p99_us\": %.1f, "
           "\"max_us\": %.1f}\n", count, load->rdy, load->rate, micros_at(samples, count, 0.5),
           micros_at(samples, count, 0.99), micros_at(samples, count, 1));
    conn_close(&subscriber);
    conn_close(&publisher);
    free(samples);
    free(request);
}
