/* Connections that are subscribed and ready while nothing happens; heartbeats are answered. */
#include "conn.h"
#include "load.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>

enum { MAX_EVENTS = 64, IN_BYTES = 512, TICK_MS = 100 };

void run_idle(const Load *load) {
    Conn *conns = calloc((size_t)load->conns, sizeof *conns);
    if (!conns)
        fail("no memory");
    struct epoll_event events[MAX_EVENTS];
    int poll = poll_make();
    int64_t began = now_ns();
    for (int at = 0; at < load->conns; at++) {
        conn_open(&conns[at], load->port, IN_BYTES);
        conn_hello(&conns[at]);
        conn_subscribe(&conns[at], load->topic, load->channel);
        conn_printf(&conns[at], "RDY 1\n");
        poll_add(poll, &conns[at]);
    }
    printf("{\"mode\": \"idle\", \"connections\": %d, \"open_s\": %.6f}\n", load->conns, (double)(now_ns() - began) / 1e9);
    fflush(stdout);
    for (int64_t until = seconds_from(now_ns(), load->seconds); now_ns() < until;) {
        int count = epoll_wait(poll, events, MAX_EVENTS, TICK_MS);
        for (int at = 0; at < count; at++) {
            Conn *c = events[at].data.ptr;
            Frame frame;
            conn_receive(c);
            while (conn_frame(c, &frame))
                ;
        }
    }
    for (int at = 0; at < load->conns; at++)
        conn_close(&conns[at]);
    free(conns);
}
