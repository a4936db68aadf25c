/* Clients that are allowed and unkind: they send the same command as fast as it goes. */
#include "conn.h"
#include "load.h"
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

enum { LINES = 4096, IN_BYTES = 1 << 20 };

/* Sends the same line again and again, as fast as it goes, and reads what comes. */
static void repeat(Conn *conns, int count, double seconds, const char *line, size_t size) {
    char *lines = malloc(LINES * size);
    size_t sent_of[MAX_THREADS] = {0}, all = LINES * size;
    struct pollfd polls[MAX_THREADS];
    long sent = 0, closed = 0;
    if (!lines)
        fail("no memory");
    for (int at = 0; at < LINES; at++)
        memcpy(lines + (size_t)at * size, line, size);
    for (int at = 0; at < count; at++)
        polls[at] = (struct pollfd){.fd = conns[at].fd, .events = POLLIN | POLLOUT};
    for (int64_t until = seconds_from(now_ns(), seconds); now_ns() < until && closed < count;) {
        poll(polls, (nfds_t)count, 100);
        for (int at = 0; at < count; at++) {
            Conn *c = &conns[at];
            if (polls[at].revents & (POLLIN | POLLHUP | POLLERR)) {
                ssize_t received = recv(c->fd, c->in, c->in_room, MSG_DONTWAIT);
                if (received == 0 || (received < 0 && errno != EAGAIN)) {
                    polls[at].fd = -1;
                    closed++;
                    continue;
                }
            }
            if (!(polls[at].revents & POLLOUT))
                continue;
            ssize_t taken = send(c->fd, lines + sent_of[at], all - sent_of[at], MSG_DONTWAIT | MSG_NOSIGNAL);
            if (taken > 0) {
                sent_of[at] = (sent_of[at] + (size_t)taken) % all;
                sent += taken;
            }
        }
    }
    printf("{\"sent\": %ld, \"closed\": %ld, \"per_s\": %.0f}\n", sent / (long)size, closed,
           (double)sent / (double)size / seconds);
    free(lines);
}

void run_fins(const Load *load) {
    static const char fin[] = "FIN ffffffffffffffff\n";
    static Conn conns[MAX_THREADS];
    for (int at = 0; at < load->conns; at++) {
        conn_open(&conns[at], load->port, IN_BYTES);
        conn_hello(&conns[at]);
        conn_subscribe(&conns[at], load->topic, load->channel);
    }
    repeat(conns, load->conns, load->seconds, fin, sizeof fin - 1);
}

void run_flood(const Load *load) {
    static Conn conns[MAX_THREADS];
    Load single = *load;
    long size;
    single.batch = 1;
    char *request = make_publish(&single, &size);
    for (int at = 0; at < load->conns; at++) {
        conn_open(&conns[at], load->port, IN_BYTES);
        conn_hello(&conns[at]);
    }
    repeat(conns, load->conns, load->seconds, request, (size_t)size);
    free(request);
}
