/* Receives messages, says so, and finishes none until stdin ends. */
#include "conn.h"
#include "load.h"
#include <poll.h>
#include <stdio.h>

enum { IN_BYTES = 1 << 20, HOLD_SECONDS = 60 };

void run_hold(const Load *load) {
    Conn c;
    Frame frame;
    long held = 0;
    int64_t until = seconds_from(now_ns(), HOLD_SECONDS);
    conn_open(&c, load->port, IN_BYTES);
    conn_hello(&c);
    conn_subscribe(&c, load->topic, load->channel);
    conn_printf(&c, "RDY %ld\n", load->count);
    for (bool reported = false;;) {
        struct pollfd both[2] = {{.fd = c.fd, .events = POLLIN}, {.fd = reported ? 0 : -1, .events = POLLIN}};
        poll(both, 2, 1000);
        if (both[1].revents)
            break;
        if (!reported && now_ns() > until)
            fail("%ld of %ld messages have come", held, load->count);
        if (both[0].revents)
            conn_receive(&c);
        while (conn_frame(&c, &frame))
            held += frame.type == FRAME_MESSAGE;
        if (!reported && held >= load->count) {
            conn_printf(&c, "RDY 0\n");
            printf("{\"held\": %ld}\n", held);
            fflush(stdout);
            reported = true;
        }
    }
    conn_close(&c);
}
