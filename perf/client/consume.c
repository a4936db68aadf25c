/* Consuming, a thread for each connection: takes what RDY allows and finishes it, a quarter of RDY in one write, or
 * less when nothing more comes.
 */
#include "conn.h"
#include "load.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

enum { IN_BYTES = 262144, QUIET_MS = 1000 };

typedef struct {
    Conn conn;
    char *fins;
    long fin_count;
} Reader;

static void send_fins(Reader *reader) {
    if (reader->fin_count)
        conn_send(&reader->conn, reader->fins, (size_t)reader->fin_count * FIN_BYTES);
    reader->fin_count = 0;
}

static long read_messages(Reader *reader, long at_once) {
    Frame frame;
    long received = 0;
    while (conn_frame(&reader->conn, &frame)) {
        if (frame.type != FRAME_MESSAGE)
            continue;
        put_fin(reader->fins + reader->fin_count * FIN_BYTES, &frame);
        received++;
        if (++reader->fin_count >= at_once)
            send_fins(reader);
    }
    return received;
}

static atomic_long consumed;
static _Atomic int64_t last_ns;

/* Ends after `count` messages of all threads, after the time, or when nothing has come for a second. */
static void consume(const Load *load, int at) {
    long at_once = load->rdy > 8 ? load->rdy / 4 : 1;
    Reader reader = {.fins = malloc((size_t)at_once * FIN_BYTES)};
    Conn *c = &reader.conn;
    struct epoll_event event;
    int poll = poll_make();
    (void)at;
    conn_open(c, load->port, IN_BYTES);
    conn_hello(c);
    conn_subscribe(c, load->topic, load->channel);
    poll_add(poll, c);
    int64_t now = threads_ready(), until = seconds_from(now, load->seconds);
    conn_printf(c, "RDY %d\n", load->rdy);
    while (now < until && !(load->count && consumed >= load->count)) {
        int events = epoll_wait(poll, &event, 1, 0);
        if (events == 0) {
            send_fins(&reader);
            poll_update(poll, c);
            events = epoll_wait(poll, &event, 1, QUIET_MS);
        }
        if (events == 0)
            break;
        conn_flush(c);
        if (event.events & ~(uint32_t)EPOLLOUT)
            conn_receive(c);
        long received = read_messages(&reader, at_once);
        now = now_ns();
        if (received) {
            last_ns = now;
            atomic_fetch_add(&consumed, received);
        }
        poll_update(poll, c);
    }
    send_fins(&reader);
    conn_finish(c);
    free(reader.fins);
}

void run_sub(const Load *load) {
    run_threads(load, consume);
    print_rate("sub", load, consumed, threads_began(), last_ns);
}
