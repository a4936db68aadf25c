/* Consuming, a thread for each connection: takes what RDY allows and finishes it, a quarter of RDY in one write, or
 * less when nothing more comes.
 */
#include "conn.h"
#include "modes.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

enum { FIN_BYTES = 21, IN_BYTES = 262144, QUIET_MS = 1000 };

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

static long take(Reader *reader, long at_once) {
    Frame frame;
    long taken = 0;
    while (conn_frame(&reader->conn, &frame)) {
        if (frame.type != FRAME_MESSAGE)
            continue;
        char *fin = reader->fins + reader->fin_count * FIN_BYTES;
        memcpy(fin, "FIN ", 4);
        memcpy(fin + 4, frame.data + MESSAGE_ID_AT, 16);
        fin[20] = '\n';
        taken++;
        if (++reader->fin_count >= at_once)
            send_fins(reader);
    }
    return taken;
}

static atomic_long taken;
static _Atomic int64_t heard;

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
    conn_printf(c, "SUB %s %s\n", load->topic, load->channel);
    conn_wait_ok(c);
    poll_add(poll, c);
    int64_t now = threads_ready(), until = now + (int64_t)(load->seconds * 1e9);
    conn_printf(c, "RDY %d\n", load->rdy);
    while (now < until && !(load->count && taken >= load->count)) {
        int found = epoll_wait(poll, &event, 1, 0);
        if (found == 0) {
            send_fins(&reader);
            poll_update(poll, c);
            found = epoll_wait(poll, &event, 1, QUIET_MS);
        }
        if (found == 0)
            break;
        conn_flush(c);
        if (event.events & ~(uint32_t)EPOLLOUT)
            conn_receive(c);
        long more = take(&reader, at_once);
        now = now_ns();
        if (more) {
            heard = now;
            atomic_fetch_add(&taken, more);
        }
        poll_update(poll, c);
    }
    send_fins(&reader);
    conn_finish(c);
    free(reader.fins);
}

void run_sub(const Load *load) {
    run_threads(load, consume);
    print_rate("sub", load, taken, threads_began(), heard);
}
