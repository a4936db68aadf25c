#define _GNU_SOURCE
#include "stream.h"
#include "conn.h"
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { READ_BYTES = 262144, OUT_BYTES = 1 << 20, STORED_BYTES = 65535 };

void bytes_need(Bytes *b, size_t size) {
    if (b->at == b->end)
        b->at = b->end = 0;
    if (b->end + size <= b->room)
        return;
    memmove(b->data, b->data + b->at, b->end - b->at);
    b->end -= b->at;
    b->at = 0;
    if (b->end + size > b->room) {
        b->room = 2 * (b->end + size);
        b->data = realloc(b->data, b->room);
        if (!b->data)
            fail("no memory");
    }
}

static void write_all(Stream *s, const char *bytes, size_t size) {
    while (size) {
        ssize_t sent = s->tls ? SSL_write(s->tls, bytes, size < 1 << 30 ? (int)size : 1 << 30)
                              : send(s->fd, bytes, size, MSG_NOSIGNAL);
        if (sent < 0 && !s->tls && errno == EINTR)
            continue;
        if (sent <= 0)
            fail("cannot send");
        bytes += sent;
        size -= (size_t)sent;
    }
}

void stream_send_coded(Stream *s, const char *bytes, size_t size) {
    static const char identifier[] = "\xff\x06\x00\x00sNaPpY";
    if (s->codec == SNAPPY && !s->greeted) {
        s->greeted = true;
        write_all(s, identifier, sizeof identifier - 1);
    }
    write_all(s, bytes, size);
}

void stream_send(Stream *s, const char *bytes, size_t size) {
    static const unsigned char flush[5] = {0, 0, 0, 0xff, 0xff};    /* nsqd keeps a stored block until this one comes */
    if (s->codec == NO_CODEC) {
        write_all(s, bytes, size);
        return;
    }
    while (size) {
        size_t piece = size < STORED_BYTES ? size : STORED_BYTES, length;
        if (s->codec == SNAPPY)
            length = snappy_encode(bytes, piece, s->out);
        else {
            unsigned char head[5] = {0, (unsigned char)piece, (unsigned char)(piece >> 8), (unsigned char)~piece,
                                     (unsigned char)(~piece >> 8)};
            memcpy(s->out, head, sizeof head);
            memcpy(s->out + sizeof head, bytes, piece);
            memcpy(s->out + sizeof head + piece, flush, sizeof flush);
            length = sizeof head + piece + sizeof flush;
        }
        stream_send_coded(s, s->out, length);
        bytes += piece;
        size -= piece;
    }
}

bool stream_has_more(Stream *s) {
    struct pollfd waits = {.fd = s->fd, .events = POLLIN};
    return (s->tls && (SSL_pending(s->tls) || BIO_pending(SSL_get_rbio(s->tls)))) || poll(&waits, 1, 0) > 0;
}

static ssize_t socket_read(Stream *s, char *to) {
    ssize_t received;
    do
        received = recv(s->fd, to, READ_BYTES, 0);
    while (received < 0 && errno == EINTR);
    if (received <= 0)
        fail("the server has closed the connection, or was silent for %d s", ANSWER_SECONDS);
    return received;
}

/* Gives OpenSSL what has come, many records at a time: left to itself, it would make a system call for each. */
static void tls_feed(Stream *s, int result) {
    if (SSL_get_error(s->tls, result) != SSL_ERROR_WANT_READ)
        fail("TLS has failed");
    ssize_t received = socket_read(s, s->out);
    BIO_write(SSL_get_rbio(s->tls), s->out, (int)received);
}

static void read_into(Stream *s, Bytes *b) {
    bytes_need(b, READ_BYTES);
    if (!s->tls) {
        b->end += (size_t)socket_read(s, b->data + b->end);
        return;
    }
    int size = SSL_read(s->tls, b->data + b->end, READ_BYTES);
    while (size <= 0) {
        tls_feed(s, size);
        size = SSL_read(s->tls, b->data + b->end, READ_BYTES);
    }
    b->end += (size_t)size;
}

static void decode(Stream *s) {
    Bytes *from = &s->coded, *to = &s->plain;
    if (s->codec == SNAPPY) {
        from->at += snappy_decode((unsigned char *)from->data + from->at, from->end - from->at, to);
        return;
    }
    z_stream *z = &s->inflate;
    z->next_in = (Bytef *)from->data + from->at;
    z->avail_in = (uInt)(from->end - from->at);
    do {
        bytes_need(to, READ_BYTES);
        z->next_out = (Bytef *)to->data + to->end;
        z->avail_out = READ_BYTES;
        int result = inflate(z, Z_SYNC_FLUSH);
        if (result != Z_OK && result != Z_BUF_ERROR)
            fail("deflate: %s", z->msg ? z->msg : "the stream has ended");
        to->end += READ_BYTES - z->avail_out;
    } while (z->avail_out == 0);
    from->at = from->end - z->avail_in;
}

void stream_receive(Stream *s) {
    if (s->codec == NO_CODEC) {
        read_into(s, &s->plain);
        return;
    }
    read_into(s, &s->coded);
    decode(s);
}

bool stream_frame(Stream *s, Frame *frame) {
    Bytes *b = &s->plain;
    size_t size;
    while ((size = frame_at(b->data + b->at, b->end - b->at, frame))) {
        b->at += size;
        refuse_error(frame);
        if (!is_heartbeat(frame))
            return true;
        stream_send(s, "NOP\n", 4);
    }
    return false;
}

void stream_wait_ok(Stream *s) {
    Frame frame;
    while (!stream_frame(s, &frame))
        stream_receive(s);
    if (frame.size != 2 || memcmp(frame.data, "OK", 2))
        fail("not OK but %.*s", (int)frame.size, frame.data);
}

static void identify(Stream *s, bool tls, Codec codec) {
    Frame frame;
    char json[256], bytes[IDENTIFY_MAX_BYTES], agreed[64];
    snprintf(json, sizeof json, "{\"client_id\":\"transports\",\"feature_negotiation\":true,\"tls_v1\":%s,"
                        "\"deflate\":%s,\"snappy\":%s}", tls ? "true" : "false", codec == DEFLATE ? "true" : "false",
                        codec == SNAPPY ? "true" : "false");
    write_all(s, bytes, (size_t)(put_identify(bytes, json) - bytes));
    while (!stream_frame(s, &frame))
        stream_receive(s);
    for (int at = 0; at < 3; at++) {
        static const char *names[] = {"tls_v1", "deflate", "snappy"};
        bool wanted[] = {tls, codec == DEFLATE, codec == SNAPPY};
        snprintf(agreed, sizeof agreed, "\"%s\":%s", names[at], wanted[at] ? "true" : "false");
        if (!memmem(frame.data, frame.size, agreed, strlen(agreed)))
            fail("the server does not agree to %s", agreed);
    }
}

void stream_open(Stream *s, int port, bool tls, Codec codec) {
    struct timeval patience = {.tv_sec = ANSWER_SECONDS};
    memset(s, 0, sizeof *s);
    s->out = malloc(OUT_BYTES);
    if (!s->out)
        fail("no memory");
    s->fd = connect_to(port);
    setsockopt(s->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    identify(s, tls, codec);
    if (tls) {
        SSL_CTX *context = SSL_CTX_new(TLS_client_method());
        BIO *in = BIO_new(BIO_s_mem());
        BIO_set_mem_eof_return(in, -1);
        s->tls = SSL_new(context);
        SSL_set_bio(s->tls, in, BIO_new_socket(s->fd, BIO_NOCLOSE));
        int result;
        while ((result = SSL_connect(s->tls)) != 1)
            tls_feed(s, result);
        stream_wait_ok(s);
    }
    if (codec == DEFLATE && inflateInit2(&s->inflate, -15) != Z_OK)
        fail("no memory");
    s->codec = codec;
    if (codec == NO_CODEC)
        return;
    /* The OK may have come together with what was before it, and is encoded. */
    s->coded = s->plain;
    s->plain = (Bytes){0};
    decode(s);
    stream_wait_ok(s);
}
