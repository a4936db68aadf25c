/* What a server on one core of this machine can do at most: `floor` drops bodies, `floor --copy` keeps a copy of each. */
#define _GNU_SOURCE
#include "peer.h"
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_EVENTS = 256 };

bool forward;
static int poll_fd;

static void control(Peer *peer, int how, bool for_room) {
    struct epoll_event event = {.events = EPOLLIN | (for_room ? EPOLLOUT : 0), .data.ptr = peer};
    epoll_ctl(poll_fd, how, peer->fd, &event);
}

void watch(Peer *peer, bool for_room) { control(peer, EPOLL_CTL_MOD, for_room); }

static Peer *add(const Floor *floor, int fd, bool listens, bool http) {
    Peer *peer = calloc(1, floor->peer_bytes);
    if (!peer)
        exit(3);
    peer->fd = fd;
    peer->listens = listens;
    peer->http = http;
    control(peer, EPOLL_CTL_ADD, false);
    return peer;
}

static void listen_on(const Floor *floor, const char *address, bool http) {
    const char *port = strrchr(address, ':');
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port ? port + 1 : "0")),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 1024)) {
        perror(address);
        exit(1);
    }
    add(floor, fd, true, http);
}

static void accept_from(const Floor *floor, const Peer *listener) {
    int on = 1, fd = accept(listener->fd, NULL, NULL);
    if (fd < 0)
        return;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    add(floor, fd, false, listener->http);
}

int main(int argc, char **argv) {
    static const char tcp[] = "--tcp-address=", http[] = "--http-address=";
    const Floor *floor = &skipping;
    struct epoll_event events[MAX_EVENTS];
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    poll_fd = epoll_create1(0);
    for (int at = 1; at < argc; at++) {
        forward |= !strcmp(argv[at], "--forward");
        if (!strcmp(argv[at], "--copy"))
            floor = &copying;
    }
    floor->start();
    for (int at = 1; at < argc; at++) {
        if (!strncmp(argv[at], tcp, sizeof tcp - 1))
            listen_on(floor, argv[at] + sizeof tcp - 1, false);
        if (!strncmp(argv[at], http, sizeof http - 1))
            listen_on(floor, argv[at] + sizeof http - 1, true);
    }
    for (;;) {
        int count = epoll_wait(poll_fd, events, MAX_EVENTS, -1);
        for (int at = 0; at < count; at++) {
            Peer *peer = events[at].data.ptr;
            if (peer->listens) {
                accept_from(floor, peer);
                continue;
            }
            if (events[at].events & EPOLLOUT)
                floor->writable(peer);
            if (events[at].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
                floor->readable(peer);
        }
    }
}
