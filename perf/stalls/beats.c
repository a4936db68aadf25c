/* Healthy clients: connections that are subscribed, ready, and answer heartbeats of 1 s at once. `beats PORT COUNT`
 * prints a line when all are open, and at the end of stdin how many the server has closed.
 */
#include "../load/conn.h"
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_EVENTS = 256, IN_BYTES = 512, TICK_MS = 50, OPEN_SECONDS = 60, HELLO_OKS = 2 };
enum { AT_ONCE = 64 };         /* in the server's backlog: a full one would block us, and heartbeats with us */

typedef struct {
    Conn conn;
    int oks;
} Client;

static long dropped, beats, open_count;

static void hello(Client *client, int port) {
    static const char about[] = "{\"heartbeat_interval\":1000}";
    uint32_t size = htonl(sizeof about - 1);
    conn_open(&client->conn, port, IN_BYTES);
    conn_send(&client->conn, "  V2IDENTIFY\n", 13);
    conn_send(&client->conn, &size, 4);
    conn_send(&client->conn, about, sizeof about - 1);
    conn_printf(&client->conn, "SUB beats beats\nRDY 1\n");
}

/* What has come; a connection that the server has closed is counted and left. */
static void hear(Client *client, int poll) {
    static const char beat[] = "_heartbeat_", nop[] = "NOP\n";
    Conn *c = &client->conn;
    ssize_t got = recv(c->fd, c->in + c->in_end, c->in_room - c->in_end, MSG_DONTWAIT);
    if (got <= 0 && (got == 0 || (errno != EAGAIN && errno != EINTR))) {
        dropped++;
        epoll_ctl(poll, EPOLL_CTL_DEL, c->fd, NULL);
        return;
    }
    c->in_end += got > 0 ? (size_t)got : 0;
    for (;;) {
        uint32_t size;
        if (c->in_end - c->in_at < 8)
            break;
        memcpy(&size, c->in + c->in_at, 4);
        size = ntohl(size);
        if (size > IN_BYTES - 4)
            fail("a frame of %u bytes", size);
        if (c->in_end - c->in_at < 4 + size)
            break;
        const char *data = c->in + c->in_at + 8;
        if (size == 4 + sizeof beat - 1 && !memcmp(data, beat, sizeof beat - 1)) {
            beats++;
            send(c->fd, nop, sizeof nop - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        } else if (++client->oks == HELLO_OKS) {
            open_count++;
        }
        c->in_at += 4 + size;
    }
    memmove(c->in, c->in + c->in_at, c->in_end - c->in_at);
    c->in_end -= c->in_at;
    c->in_at = 0;
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    setpriority(PRIO_PROCESS, 0, -10);
    long count = atol(argv[2]);
    Client *clients = calloc((size_t)count + 1, sizeof *clients);
    struct epoll_event events[MAX_EVENTS], stdin_event = {.events = EPOLLIN, .data.ptr = NULL};
    int poll = poll_make();
    bool said = false;
    int64_t until = now_ns() + (int64_t)OPEN_SECONDS * 1000000000;
    for (long made = 0;;) {
        for (; made < count && made - open_count < AT_ONCE; made++) {
            hello(&clients[made], atoi(argv[1]));
            struct epoll_event event = {.events = EPOLLIN, .data.ptr = &clients[made]};
            if (epoll_ctl(poll, EPOLL_CTL_ADD, clients[made].conn.fd, &event))
                fail("cannot poll");
        }
        if (!said && open_count == count) {
            said = true;
            printf("{\"open\": %ld}\n", open_count);
            fflush(stdout);
            if (epoll_ctl(poll, EPOLL_CTL_ADD, 0, &stdin_event))
                fail("cannot poll");
        }
        if (!said && now_ns() > until)
            fail("%ld of %ld clients are subscribed", open_count, count);
        int found = epoll_wait(poll, events, MAX_EVENTS, TICK_MS);
        for (int at = 0; at < found; at++) {
            if (!events[at].data.ptr) {
                printf("{\"dropped\": %ld, \"beats\": %ld}\n", dropped, beats);
                return 0;
            }
            hear(events[at].data.ptr, poll);
        }
    }
}
