/* Clients that are allowed and unkind. Each prints a line of JSON.
 *
 *   strange fins PORT CONNECTIONS SECONDS        FINs of ids that nobody has, as fast as they go; errors are read
 *   strange pubs PORT CONNECTIONS SECONDS SIZE   PUBs to topic load, as fast as they go
 *   strange hold PORT COUNT TOPIC                takes COUNT messages, says so, and finishes none until stdin ends
 */
#include "../load/conn.h"
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { MAX_CONNS = 64, LINES = 4096, HEAD_BYTES = 13, IN_BYTES = 1 << 20, HOLD_SECONDS = 60 };

static void subscribe(Conn *c, int port, const char *topic, long ready) {
    conn_open(c, port, IN_BYTES);
    conn_hello(c);
    conn_printf(c, "SUB %s ch\n", topic);
    conn_wait_ok(c);
    if (ready)
        conn_printf(c, "RDY %ld\n", ready);
}

/* Sends the same line again and again, as fast as it goes, and reads what comes. */
static void flood(Conn *conns, int count, double seconds, const char *line, size_t size) {
    char *lines = malloc(LINES * size);
    size_t sent_of[MAX_CONNS] = {0}, all = LINES * size;
    struct pollfd polls[MAX_CONNS];
    long sent = 0, closed = 0;
    if (!lines)
        fail("no memory");
    for (int at = 0; at < LINES; at++)
        memcpy(lines + (size_t)at * size, line, size);
    for (int at = 0; at < count; at++)
        polls[at] = (struct pollfd){.fd = conns[at].fd, .events = POLLIN | POLLOUT};
    for (int64_t until = now_ns() + (int64_t)(seconds * 1e9); now_ns() < until && closed < count;) {
        poll(polls, (nfds_t)count, 100);
        for (int at = 0; at < count; at++) {
            Conn *c = &conns[at];
            if (polls[at].revents & (POLLIN | POLLHUP | POLLERR)) {
                ssize_t got = recv(c->fd, c->in, c->in_room, MSG_DONTWAIT);
                if (got == 0 || (got < 0 && errno != EAGAIN)) {
                    polls[at].fd = -1;
                    closed++;
                    continue;
                }
            }
            if (!(polls[at].revents & POLLOUT))
                continue;
            ssize_t did = send(c->fd, lines + sent_of[at], all - sent_of[at], MSG_DONTWAIT | MSG_NOSIGNAL);
            if (did > 0) {
                sent_of[at] = (sent_of[at] + (size_t)did) % all;
                sent += did;
            }
        }
    }
    printf("{\"sent\": %ld, \"closed\": %ld, \"per_s\": %.0f}\n", sent / (long)size, closed,
           (double)sent / (double)size / seconds);
    free(lines);
}

static void fins(int port, int count, double seconds) {
    static Conn conns[MAX_CONNS];
    for (int at = 0; at < count; at++)
        subscribe(&conns[at], port, "strange", 0);
    flood(conns, count, seconds, "FIN ffffffffffffffff\n", 21);
}

static void pubs(int port, int count, double seconds, int body) {
    static Conn conns[MAX_CONNS];
    char *line = malloc(HEAD_BYTES + (size_t)body);
    uint32_t size = htonl((uint32_t)body);
    if (!line)
        fail("no memory");
    memcpy(line, "PUB load\n", 9);
    memcpy(line + 9, &size, 4);
    memset(line + HEAD_BYTES, 'x', (size_t)body);
    for (int at = 0; at < count; at++) {
        conn_open(&conns[at], port, IN_BYTES);
        conn_hello(&conns[at]);
    }
    flood(conns, count, seconds, line, HEAD_BYTES + (size_t)body);
    free(line);
}

static void hold(int port, long count, const char *topic) {
    static Conn c;
    Frame frame;
    long held = 0;
    int64_t until = now_ns() + (int64_t)HOLD_SECONDS * 1000000000;
    subscribe(&c, port, topic, count);
    for (bool said = false;;) {
        struct pollfd both[2] = {{.fd = c.fd, .events = POLLIN}, {.fd = said ? 0 : -1, .events = POLLIN}};
        poll(both, 2, 1000);
        if (both[1].revents)
            break;
        if (!said && now_ns() > until)
            fail("%ld of %ld messages have come", held, count);
        if (both[0].revents)
            conn_receive(&c);
        while (conn_frame(&c, &frame))
            held += frame.type == FRAME_MESSAGE;
        if (!said && held >= count) {
            conn_printf(&c, "RDY 0\n");
            printf("{\"held\": %ld}\n", held);
            fflush(stdout);
            said = true;
        }
    }
    conn_close(&c);
}

int main(int argc, char **argv) {
    if (argc == 5 && !strcmp(argv[1], "fins") && atoi(argv[3]) <= MAX_CONNS)
        fins(atoi(argv[2]), atoi(argv[3]), atof(argv[4]));
    else if (argc == 6 && !strcmp(argv[1], "pubs") && atoi(argv[3]) <= MAX_CONNS && atoi(argv[5]) > 0)
        pubs(atoi(argv[2]), atoi(argv[3]), atof(argv[4]), atoi(argv[5]));
    else if (argc == 5 && !strcmp(argv[1], "hold"))
        hold(atoi(argv[2]), atol(argv[3]), argv[4]);
    else
        return 2;
    return 0;
}
