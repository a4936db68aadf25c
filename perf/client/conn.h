/* One connection to 127.0.0.1 that never blocks while it sends or receives, with an input and an output buffer.
 *
 * Every failure ends the program (report.h).
 */
#ifndef CONN_H
#define CONN_H
#include "frames.h"
#include <stdbool.h>
#include <stddef.h>

enum { ANSWER_SECONDS = 30 };                           /* how long an answer may take */

typedef struct {
    int fd;
    char *in;                   /* owned: received bytes lie from in_at to in_end */
    size_t in_at, in_end, in_room;
    char *out;                  /* owned: bytes that the socket did not take, from out_at to out_end */
    size_t out_at, out_end, out_room;
    long open;                  /* requests that wait for their answer */
    bool stuck;                 /* the poll watches for room to send */
} Conn;

int connect_to(int port);                               /* a socket that blocks, without Nagle's delay */

void conn_open(Conn *c, int port, size_t in_room);
void conn_identify(Conn *c, const char *json);          /* magic and IDENTIFY; does not wait */
void conn_hello(Conn *c);                               /* the usual IDENTIFY, up to the answer */
void conn_subscribe(Conn *c, const char *topic, const char *channel);   /* SUB, up to the answer */
void conn_close(Conn *c);
void conn_finish(Conn *c);                              /* closes when the server has read all; waits 2 s at most */
void conn_send(Conn *c, const void *bytes, size_t size);
void conn_printf(Conn *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool conn_flush(Conn *c);                               /* true: everything is sent */
bool conn_receive(Conn *c);                             /* one recv; false: nothing has come */
bool conn_try_receive(Conn *c, bool *closed);           /* the same, but reports a closed connection */
bool conn_frame(Conn *c, Frame *frame);                 /* takes the next whole frame; answers heartbeats itself */
void conn_wait_ok(Conn *c);                             /* blocks, with a limit, until a response frame has come */

int poll_make(void);
void poll_add(int poll, Conn *c);
void poll_update(int poll, Conn *c);                    /* after sending: watches for room while something is left */
#endif
