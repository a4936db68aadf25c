/* Healthy clients: connections that are subscribed, ready, and answer heartbeats of 1 s at once. Prints a line when all
 * are open, and at the end of stdin how many the server has closed.
 */
#include "conn.h"
#include "load.h"
#include <stdio.h>
#include <stdlib.h>
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
    conn_open(&client->conn, port, IN_BYTES);
    conn_identify(&client->conn, "{\"heartbeat_interval\":1000}");
    conn_printf(&client->conn, "SUB beats beats\nRDY 1\n");
}

/* Reads what has come; a connection that the server has closed is counted and left. */
static void hear(Client *client, int poll) {
    static const char nop[] = "NOP\n";
    Conn *c = &client->conn;
    Frame frame;
    bool closed;
    conn_try_receive(c, &closed);
    if (closed) {
        dropped++;
        epoll_ctl(poll, EPOLL_CTL_DEL, c->fd, NULL);
        return;
    }
    for (size_t size; (size = frame_at(c->in + c->in_at, c->in_end - c->in_at, &frame)); c->in_at += size) {
        refuse_error(&frame);
        if (is_heartbeat(&frame)) {
            beats++;
            send(c->fd, nop, sizeof nop - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        } else if (++client->oks == HELLO_OKS) {
            open_count++;
        }
    }
}

void run_beats(const Load *load) {
    setpriority(PRIO_PROCESS, 0, -10);
    Client *clients = calloc((size_t)load->conns, sizeof *clients);
    struct epoll_event events[MAX_EVENTS], stdin_event = {.events = EPOLLIN, .data.ptr = NULL};
    int poll = poll_make(), opened = 0;
    bool reported = false;
    int64_t until = seconds_from(now_ns(), OPEN_SECONDS);
    if (!clients)
        fail("no memory");
    for (;;) {
        for (; opened < load->conns && opened - open_count < AT_ONCE; opened++) {
            hello(&clients[opened], load->port);
            poll_add(poll, &clients[opened].conn);
        }
        if (!reported && open_count == load->conns) {
            reported = true;
            printf("{\"open\": %ld}\n", open_count);
            fflush(stdout);
            if (epoll_ctl(poll, EPOLL_CTL_ADD, 0, &stdin_event))
                fail("cannot poll");
        }
        if (!reported && now_ns() > until)
            fail("%ld of %d clients are subscribed", open_count, load->conns);
        int count = epoll_wait(poll, events, MAX_EVENTS, TICK_MS);
        for (int at = 0; at < count; at++) {
            if (!events[at].data.ptr) {
                printf("{\"dropped\": %ld, \"beats\": %ld}\n", dropped, beats);
                return;
            }
            hear(events[at].data.ptr, poll);        /* a Client begins with its Conn */
        }
    }
}
