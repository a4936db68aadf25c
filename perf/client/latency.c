/* PUB to delivery, on one machine's clock: each body carries the time when it was sent. The rate is open-loop: a slow
 * delivery does not delay the next PUB.
 */
#define _GNU_SOURCE
#include "conn.h"
#include "load.h"
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SAMPLES = 4000000, LAST_WAIT_MS = 2000 };

static long read_messages(Conn *subscriber, int64_t *samples, long count) {
    Frame frame;
    while (conn_frame(subscriber, &frame)) {
        int64_t sent;
        if (frame.type != FRAME_MESSAGE)
            continue;
        memcpy(&sent, frame.data + MESSAGE_BODY_AT, sizeof sent);
        if (count < MAX_SAMPLES)
            samples[count++] = now_ns() - sent;
        char fin[FIN_BYTES];
        put_fin(fin, &frame);
        conn_send(subscriber, fin, sizeof fin);
    }
    return count;
}

void run_latency(const Load *load) {
    Load single = *load;
    Frame frame;
    Conn subscriber, publisher;
    long size, sent = 0, count = 0, most = load->count ? load->count : MAX_SAMPLES;
    int64_t *samples = malloc(sizeof *samples * MAX_SAMPLES);
    if (!samples)
        fail("no memory");
    single.batch = 1;
    char *request = make_publish(&single, &size), *body = request + size - load->size;
    conn_open(&subscriber, load->port, 65536);
    conn_hello(&subscriber);
    conn_subscribe(&subscriber, load->topic, load->channel);
    conn_printf(&subscriber, "RDY %d\n", load->rdy);
    conn_open(&publisher, load->port, 65536);
    conn_hello(&publisher);
    poll(NULL, 0, 100);
    int64_t began = now_ns(), due = began, until = seconds_from(began, load->seconds);
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
            count = read_messages(&subscriber, samples, count);
        if (both[1].revents && conn_receive(&publisher))
            while (conn_frame(&publisher, &frame))
                ;
    }
    sort_times(samples, count);
    printf("{\"mode\": \"latency\", \"messages\": %ld, \"rdy\": %d, \"rate\": %.0f, \"p50_us\": %.1f, \"p99_us\": %.1f, "
           "\"max_us\": %.1f}\n", count, load->rdy, load->rate, (double)time_at(samples, count, 0.5) / 1e3,
           (double)time_at(samples, count, 0.99) / 1e3, (double)time_at(samples, count, 1) / 1e3);
    conn_close(&subscriber);
    conn_close(&publisher);
    free(samples);
    free(request);
}
