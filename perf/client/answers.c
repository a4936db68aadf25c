/* PUB to OK on one connection. The rate is open-loop: a slow answer does not delay the next PUB, and counts in full. */
#define _GNU_SOURCE
#include "conn.h"
#include "load.h"
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

void run_answers(const Load *load) {
    Load single = *load;
    Frame frame;
    Conn conn;
    long size, sent = 0, count = 0, most = (long)(load->seconds * load->rate) + 1;
    int64_t *sent_at = malloc(sizeof *sent_at * (size_t)most), *samples = malloc(sizeof *samples * (size_t)most);
    single.batch = 1;
    char *request = make_publish(&single, &size);
    if (!sent_at || !samples)
        fail("no memory");
    conn_open(&conn, load->port, 65536);
    conn_hello(&conn);
    int64_t began = now_ns(), until = seconds_from(began, load->seconds), due = began;
    while (due < until || count < sent) {
        bool more = due < until && sent < most;
        int64_t left = more ? due - now_ns() : (int64_t)ANSWER_SECONDS * 1000000000;
        if (!more && due < until)
            due = until;
        if (more && left <= 0) {
            sent_at[sent++] = due;
            conn_send(&conn, request, (size_t)size);
            due += (int64_t)(1e9 / load->rate);
            continue;
        }
        struct timespec wait = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
        struct pollfd one = {.fd = conn.fd, .events = POLLIN};
        if (ppoll(&one, 1, &wait, NULL) == 0 && !more)
            fail("no answer in %d s", ANSWER_SECONDS);
        if (one.revents && conn_receive(&conn))
            for (; conn_frame(&conn, &frame); count++)
                samples[count] = now_ns() - sent_at[count];
    }
    sort_times(samples, count);
    printf("{\"mode\": \"answers\", \"messages\": %ld, \"rate\": %.0f, \"p50_us\": %.1f, \"p99_us\": %.1f, "
           "\"max_us\": %.1f}\n", count, load->rate, (double)time_at(samples, count, 0.5) / 1e3,
           (double)time_at(samples, count, 0.99) / 1e3, (double)time_at(samples, count, 1) / 1e3);
    conn_close(&conn);
    free(samples);
    free(sent_at);
    free(request);
}
