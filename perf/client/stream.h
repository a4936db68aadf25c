/* One blocking connection to an nsqd: a socket, TLS over it where asked for, and a codec over both.
 *
 * Every failure ends the program (report.h).
 */
#ifndef STREAM_H
#define STREAM_H
#include "frames.h"
#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zlib.h>

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
} Stream;

void stream_open(Stream *s, int port, bool tls, Codec codec);       /* up to the last OK of the upgrades */
void stream_send(Stream *s, const char *bytes, size_t size);        /* encodes, cheaply: nothing is compressed */
void stream_send_coded(Stream *s, const char *bytes, size_t size);  /* what the codec has encoded already */
void stream_receive(Stream *s);                                     /* blocks until something has come */
bool stream_has_more(Stream *s);                                    /* stream_receive would not block */
bool stream_frame(Stream *s, Frame *frame);                         /* the next whole frame; answers heartbeats */
void stream_wait_ok(Stream *s);
void bytes_need(Bytes *b, size_t size);                         /* room for so much behind end */

size_t snappy_decode(const unsigned char *from, size_t size, Bytes *to);    /* whole chunks; how much of from is used */
size_t snappy_encode(const char *from, size_t size, char *to);  /* as uncompressed chunks; to: size + size / 8192 + 64 */
#endif
