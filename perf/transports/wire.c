#define _GNU_SOURCE
#include "wire.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { READ_BYTES = 262144, OUT_BYTES = 1 << 20, STORED_BYTES = 65535, ANSWER_SECONDS = 30 };

int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void fail(const char *what, ...) {
    va_list args;
    va_start(args, what);
    fputs("ways: ", stderr);
    vfprintf(stderr, what, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

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

static void write_all(Wire *w, const char *bytes, size_t size) {
    while (size) {
        ssize_t sent = w->tls ? SSL_write(w->tls, bytes, size < 1 << 30 ? (int)size : 1 << 30)
                              : send(w->fd, bytes, size, MSG_NOSIGNAL);
        if (sent < 0 && !w->tls && errno == EINTR)
            continue;
        if (sent <= 0)
            fail("cannot send: %s", strerror(errno));
        bytes += sent;
        size -= (size_t)sent;
    }
}

void wire_send_coded(Wire *w, const char *bytes, size_t size) {
    static const char identifier[] = "\xff\x06\x00\x00sNaPpY";
    if (w->codec == SNAPPY && !w->greeted) {
        w->greeted = true;
        write_all(w, identifier, sizeof identifier - 1);
    }
    write_all(w, bytes, size);
}

void wire_send(Wire *w, const char *bytes, size_t size) {
    if (w->codec == NO_CODEC) {
        write_all(w, bytes, size);
        return;
    }
    while (size) {
        size_t piece = size < STORED_BYTES ? size : STORED_BYTES, length;
        if (w->codec == SNAPPY)
            length = snappy_encode(bytes, piece, w->out);
        else {
            unsigned char head[5] = {0, (unsigned char)piece, (unsigned char)(piece >> 8), (unsigned char)~piece,
                                     (unsigned char)(~piece >> 8)};
            memcpy(w->out, head, sizeof head);
            memcpy(w->out + sizeof head, bytes, piece);
            length = sizeof head + piece;
        }
        wire_send_coded(w, w->out, length);
        bytes += piece;
        size -= piece;
    }
}

bool wire_has_more(Wire *w) {
    struct pollfd waits = {.fd = w->fd, .events = POLLIN};
    return (w->tls && (SSL_pending(w->tls) || BIO_pending(SSL_get_rbio(w->tls)))) || poll(&waits, 1, 0) > 0;
}

static ssize_t socket_read(Wire *w, char *to) {
    ssize_t got;
    do
        got = recv(w->fd, to, READ_BYTES, 0);
    while (got < 0 && errno == EINTR);
    if (got <= 0)
        fail("the server has gone, or says nothing for %d s", ANSWER_SECONDS);
    return got;
}

/* Gives OpenSSL what has come, many records at a time: left to itself, it would make a system call for each. */
static void tls_feed(Wire *w, int result) {
    if (SSL_get_error(w->tls, result) != SSL_ERROR_WANT_READ)
        fail("TLS has failed");
    ssize_t got = socket_read(w, w->out);
    BIO_write(SSL_get_rbio(w->tls), w->out, (int)got);
}

static void read_into(Wire *w, Bytes *b) {
    bytes_need(b, READ_BYTES);
    if (!w->tls) {
        b->end += (size_t)socket_read(w, b->data + b->end);
        return;
    }
    int got = SSL_read(w->tls, b->data + b->end, READ_BYTES);
    while (got <= 0) {
        tls_feed(w, got);
        got = SSL_read(w->tls, b->data + b->end, READ_BYTES);
    }
    b->end += (size_t)got;
}

static void decode(Wire *w) {
    Bytes *from = &w->coded, *to = &w->plain;
    if (w->codec == SNAPPY) {
        from->at += snappy_decode((unsigned char *)from->data + from->at, from->end - from->at, to);
        return;
    }
    z_stream *z = &w->inflate;
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

void wire_receive(Wire *w) {
    if (w->codec == NO_CODEC) {
        read_into(w, &w->plain);
        return;
    }
    read_into(w, &w->coded);
    decode(w);
}

static uint32_t u32(const char *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return ntohl(value);
}

bool wire_frame(Wire *w, Frame *frame) {
    Bytes *b = &w->plain;
    while (b->end - b->at >= 8) {
        size_t size = u32(b->data + b->at);
        if (b->end - b->at < 4 + size)
            return false;
        *frame = (Frame){.type = u32(b->data + b->at + 4), .data = b->data + b->at + 8, .size = size - 4};
        b->at += 4 + size;
        if (frame->type == FRAME_ERROR)
            fail("%.*s", (int)frame->size, frame->data);
        if (frame->type == FRAME_RESPONSE && frame->size == 11 && !memcmp(frame->data, "_heartbeat_", 11)) {
            wire_send(w, "NOP\n", 4);
            continue;
        }
        return true;
    }
    return false;
}

void wire_wait_ok(Wire *w) {
    Frame frame;
    while (!wire_frame(w, &frame))
        wire_receive(w);
    if (frame.size != 2 || memcmp(frame.data, "OK", 2))
        fail("not OK but %.*s", (int)frame.size, frame.data);
}

static void identify(Wire *w, bool tls, Codec codec) {
    Frame frame;
    char json[256], agreed[64];
    int size = snprintf(json, sizeof json, "{\"client_id\":\"ways\",\"feature_negotiation\":true,\"tls_v1\":%s,"
                        "\"deflate\":%s,\"snappy\":%s}", tls ? "true" : "false", codec == DEFLATE ? "true" : "false",
                        codec == SNAPPY ? "true" : "false");
    uint32_t length = htonl((uint32_t)size);
    write_all(w, "  V2IDENTIFY\n", 13);
    write_all(w, (char *)&length, 4);
    write_all(w, json, (size_t)size);
    while (!wire_frame(w, &frame))
        wire_receive(w);
    for (int at = 0; at < 3; at++) {
        static const char *names[] = {"tls_v1", "deflate", "snappy"};
        bool wanted[] = {tls, codec == DEFLATE, codec == SNAPPY};
        snprintf(agreed, sizeof agreed, "\"%s\":%s", names[at], wanted[at] ? "true" : "false");
        if (!memmem(frame.data, frame.size, agreed, strlen(agreed)))
            fail("the server does not agree to %s", agreed);
    }
}

void wire_open(Wire *w, int port, bool tls, Codec codec) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {.tv_sec = ANSWER_SECONDS};
    int on = 1;
    memset(w, 0, sizeof *w);
    w->out = malloc(OUT_BYTES);
    w->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (!w->out || w->fd < 0 || connect(w->fd, (struct sockaddr *)&to, sizeof to))
        fail("cannot connect to port %d: %s", port, strerror(errno));
    setsockopt(w->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(w->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    identify(w, tls, codec);
    if (tls) {
        SSL_CTX *context = SSL_CTX_new(TLS_client_method());
        BIO *in = BIO_new(BIO_s_mem());
        BIO_set_mem_eof_return(in, -1);
        w->tls = SSL_new(context);
        SSL_set_bio(w->tls, in, BIO_new_socket(w->fd, BIO_NOCLOSE));
        int result;
        while ((result = SSL_connect(w->tls)) != 1)
            tls_feed(w, result);
        wire_wait_ok(w);
    }
    if (codec == DEFLATE && inflateInit2(&w->inflate, -15) != Z_OK)
        fail("no memory");
    w->codec = codec;
    if (codec == NO_CODEC)
        return;
    /* The OK may have come together with what was before it, and is encoded. */
    w->coded = w->plain;
    w->plain = (Bytes){0};
    decode(w);
    wire_wait_ok(w);
}
