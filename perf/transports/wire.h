/* One blocking connection to an nsqd: a socket, TLS over it where asked for, and a codec over both.
 *
 * Every failure ends the program with one line on stderr and exit code 1.
 */
#ifndef WIRE_H
#define WIRE_H
#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zlib.h>

enum { FRAME_RESPONSE, FRAME_ERROR, FRAME_MESSAGE };
enum { MESSAGE_ID_AT = 10 };
typedef enum { NO_CODEC, DEFLATE, SNAPPY } Codec;

typedef struct {
    char *data;                 /* owned; what is not used yet lies from at to end */
    size_t at, end, room;
} Bytes;

typedef struct {
    int fd;
    SSL *tls;                   /* NULL: in the clear */
    Codec codec;
    bool greeted;               /* snappy: our identifier is sent */
    z_stream inflate;
    Bytes coded;                /* from the peer, not decoded yet; unused without a codec */
    Bytes plain;                /* from the peer, frames */
    char *out;                  /* room to encode in */
} Wire;

typedef struct {
    uint32_t type;
    const char *data;           /* until the next wire_receive */
    size_t size;
} Frame;

void fail(const char *what, ...);
int64_t now_ns(void);

void wire_open(Wire *w, int port, bool tls, Codec codec);       /* up to the last OK of the upgrades */
void wire_send(Wire *w, const char *bytes, size_t size);        /* encodes, cheaply: nothing is compressed */
void wire_send_coded(Wire *w, const char *bytes, size_t size);  /* what the codec has encoded already */
void wire_receive(Wire *w);                                     /* blocks until something has come */
bool wire_has_more(Wire *w);                                    /* wire_receive would not block */
bool wire_frame(Wire *w, Frame *frame);                         /* the next whole frame; answers heartbeats */
void wire_wait_ok(Wire *w);
void bytes_need(Bytes *b, size_t size);                         /* room for so much behind end */

size_t snappy_decode(const unsigned char *from, size_t size, Bytes *to);    /* whole chunks; how much of from is used */
size_t snappy_encode(const char *from, size_t size, char *to);  /* as uncompressed chunks; to: size + size / 8192 + 64 */
#endif
