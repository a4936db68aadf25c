#define _GNU_SOURCE
#include "conn.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FINISH_MS = 2000 };

int connect_to(int port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to))
        fail("cannot connect to port %d", port);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

void conn_open(Conn *c, int port, size_t in_room) {
    memset(c, 0, sizeof *c);
    c->in_room = in_room;
    c->in = malloc(in_room);
    if (!c->in)
        fail("no memory");
    c->fd = connect_to(port);
}

void conn_identify(Conn *c, const char *json) {
    char bytes[IDENTIFY_MAX_BYTES];
    conn_send(c, bytes, (size_t)(put_identify(bytes, json) - bytes));
}

void conn_hello(Conn *c) {
    conn_identify(c, "{\"client_id\":\"load\",\"hostname\":\"load\",\"user_agent\":\"nsqc-load/1\"}");
    conn_wait_ok(c);
}

void conn_subscribe(Conn *c, const char *topic, const char *channel) {
    conn_printf(c, "SUB %s %s\n", topic, channel);
    conn_wait_ok(c);
}

void conn_close(Conn *c) {
    close(c->fd);
    free(c->in);
    free(c->out);
}

void conn_finish(Conn *c) {
    struct pollfd wait = {.fd = c->fd, .events = POLLOUT};
    while (!conn_flush(c) && poll(&wait, 1, FINISH_MS) > 0)
        ;
    shutdown(c->fd, SHUT_WR);
    wait.events = POLLIN;
    while (poll(&wait, 1, FINISH_MS) > 0 && recv(c->fd, c->in, c->in_room, MSG_DONTWAIT) > 0)
        ;
    conn_close(c);
}

bool conn_flush(Conn *c) {
    while (c->out_at < c->out_end) {
        ssize_t sent = send(c->fd, c->out + c->out_at, c->out_end - c->out_at, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN)
            return false;
        if (sent < 0 && errno != EINTR)
            fail("cannot send");
        c->out_at += sent > 0 ? (size_t)sent : 0;
    }
    c->out_at = c->out_end = 0;
    return true;
}

void conn_send(Conn *c, const void *bytes, size_t size) {
    if (c->out_at == c->out_end) {
        ssize_t sent = send(c->fd, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN && errno != EINTR)
            fail("cannot send");
        if (sent > 0) {
            bytes = (const char *)bytes + sent;
            size -= (size_t)sent;
        }
    }
    if (!size)
        return;
    if (c->out_end + size > c->out_room) {
        c->out_room = 2 * (c->out_end + size);
        c->out = realloc(c->out, c->out_room);
        if (!c->out)
            fail("no memory");
    }
    memcpy(c->out + c->out_end, bytes, size);
    c->out_end += size;
}

void conn_printf(Conn *c, const char *format, ...) {
    char line[512];
    va_list args;
    va_start(args, format);
    int size = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    conn_send(c, line, (size_t)size);
}

bool conn_try_receive(Conn *c, bool *closed) {
    if (c->in_at) {
        memmove(c->in, c->in + c->in_at, c->in_end - c->in_at);
        c->in_end -= c->in_at;
        c->in_at = 0;
    }
    if (c->in_end == c->in_room) {
        c->in_room *= 2;
        c->in = realloc(c->in, c->in_room);
        if (!c->in)
            fail("no memory");
    }
    errno = 0;
    ssize_t size = recv(c->fd, c->in + c->in_end, c->in_room - c->in_end, MSG_DONTWAIT);
    *closed = size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR);
    if (size <= 0)
        return false;
    c->in_end += (size_t)size;
    return true;
}

bool conn_receive(Conn *c) {
    bool closed, received = conn_try_receive(c, &closed);
    if (closed)
        fail("the server has closed the connection");
    return received;
}

bool conn_frame(Conn *c, Frame *frame) {
    size_t size;
    while ((size = frame_at(c->in + c->in_at, c->in_end - c->in_at, frame))) {
        c->in_at += size;
        refuse_error(frame);
        if (!is_heartbeat(frame))
            return true;
        conn_send(c, "NOP\n", 4);
    }
    return false;
}

void conn_wait_ok(Conn *c) {
    int64_t until = now_ns() + (int64_t)ANSWER_SECONDS * 1000000000;
    Frame frame;
    while (!conn_frame(c, &frame)) {
        struct pollfd wait = {.fd = c->fd, .events = POLLIN | (c->out_end ? POLLOUT : 0)};
        errno = 0;
        if (now_ns() > until)
            fail("no answer in %d s", ANSWER_SECONDS);
        if (poll(&wait, 1, 1000) > 0) {
            conn_flush(c);
            conn_receive(c);
        }
    }
}

int poll_make(void) {
    int poll = epoll_create1(0);
    if (poll < 0)
        fail("cannot poll");
    return poll;
}

void poll_add(int poll, Conn *c) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(poll, EPOLL_CTL_ADD, c->fd, &event))
        fail("cannot poll");
}

void poll_update(int poll, Conn *c) {
    bool stuck = c->out_end > 0;
    if (stuck == c->stuck)
        return;
    c->stuck = stuck;
    struct epoll_event event = {.events = EPOLLIN | (stuck ? EPOLLOUT : 0), .data.ptr = c};
    if (epoll_ctl(poll, EPOLL_CTL_MOD, c->fd, &event))
        fail("cannot poll");
}
