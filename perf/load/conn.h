/* One connection of the load client: a non-blocking socket with an input and an output buffer, and V2 frames.
 *
 * Every failure ends the program with one line on stderr and exit code 1: a load run with a broken client is no figure.
 */
#ifndef CONN_H
#define CONN_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ANSWER_SECONDS = 30 };                           /* how long an answer may take */
enum { FRAME_RESPONSE, FRAME_ERROR, FRAME_MESSAGE };
enum { MESSAGE_ID_AT = 10, MESSAGE_BODY_AT = 26 };      /* within a message frame's data: time 8, attempts 2, id 16 */

typedef struct {
    int fd;
    char *in;                   /* owned: received bytes lie from in_at to in_end */
    size_t in_at, in_end, in_room;
    char *out;                  /* owned: bytes that the socket did not take, from out_at to out_end */
    size_t out_at, out_end, out_room;
    long open;                  /* requests that wait for their answer */
    bool stuck;                 /* the poll watches for room to send */
} Conn;

typedef struct {
    uint32_t type;
    const char *data;           /* in the connection's input buffer, until the next conn_receive */
    size_t size;
} Frame;

int64_t now_ns(void);                                   /* monotonic */
void fail(const char *what, ...);                       /* with errno's text where it is set; does not return */

void conn_open(Conn *c, int port, size_t in_room);      /* to 127.0.0.1 */
void conn_hello(Conn *c);                               /* magic and IDENTIFY, up to the answer */
void conn_close(Conn *c);
void conn_finish(Conn *c);                              /* closes when the server has read all; waits 2 s at most */
void conn_send(Conn *c, const void *bytes, size_t size);
void conn_printf(Conn *c, const char *format, ...);
bool conn_flush(Conn *c);                               /* true: everything is sent */
bool conn_receive(Conn *c);                             /* one recv; false: nothing there */
bool conn_frame(Conn *c, Frame *frame);                 /* takes the next whole frame; answers heartbeats itself */
void conn_wait_ok(Conn *c);                             /* blocks, with a limit, until a response frame came */

int poll_make(void);
void poll_add(int poll, Conn *c);
void poll_update(int poll, Conn *c);                    /* after sending: watches for room while something is left */
#endif
