/* The servers whose protocols are made of binary frames: NSQ's (nsqd and nsqc) and AMQP 0-9-1 (RabbitMQ). */
#include "rival.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- NSQ: PUB or MPUB; SUB, RDY and FIN ---- */

static void nsq_setup(Peer *peer, const Work *work) { conn_subscribe(&peer->conn, work->topic, "c"); }

static void nsq_hello(Peer *peer, const Work *work) {
    (void)work;
    conn_hello(&peer->conn);
}

static char *nsq_put(char *to, const Peer *peer, const Work *work, const char *body) {
    (void)peer;
    to += sprintf(to, "%s %s\n", work->batch == 1 ? "PUB" : "MPUB", work->topic);
    if (work->batch > 1) {
        to = put_u32(to, (uint32_t)(4 + work->batch * (work->size + 4)));
        to = put_u32(to, (uint32_t)work->batch);
    }
    for (int at = 0; at < work->batch; at++) {
        to = put_u32(to, (uint32_t)work->size);
        memcpy(to, body, (size_t)work->size);
        to += work->size;
    }
    return to;
}

static long nsq_answers(Peer *peer, const Work *work) {
    Frame frame;
    long found = 0;
    while (conn_frame(&peer->conn, &frame))
        found += work->batch;
    return found;
}

static void nsq_subscribe(Peer *peer, const Work *work) {
    conn_subscribe(&peer->conn, work->topic, "c");
    conn_printf(&peer->conn, "RDY %d\n", work->window);
}

static long nsq_deliver(Peer *peer, const Work *work, long left) {
    Frame frame;
    long found = 0;
    char *to = peer->acks;
    (void)work, (void)left;
    while (conn_frame(&peer->conn, &frame)) {
        if (frame.type != FRAME_MESSAGE)
            continue;
        if (to + FIN_BYTES > peer->acks + ACKS_ROOM) {
            conn_send(&peer->conn, peer->acks, (size_t)(to - peer->acks));
            to = peer->acks;
        }
        to = put_fin(to, &frame);
        found++;
    }
    if (to > peer->acks)
        conn_send(&peer->conn, peer->acks, (size_t)(to - peer->acks));
    return found;
}

const Protocol NSQ = {"nsq", nsq_setup, nsq_hello, nsq_put, nsq_answers, nsq_subscribe, nsq_deliver};

/* ---- AMQP 0-9-1: basic.publish with confirms; basic.consume and basic.ack of several ---- */

enum { METHOD = 1, HEADER = 2, BODY = 3, HEAD_BYTES = 7, FRAME_END = 0xCE, FRAME_MAX = 131072, CHANNELS = 16, METHOD_ROOM = 1024 };

/* Class and method, as one number. */
#define AMQP(class, method) ((uint32_t)(class) << 16 | (method))

enum {
    START = AMQP(10, 10), START_OK = AMQP(10, 11), TUNE = AMQP(10, 30), TUNE_OK = AMQP(10, 31), OPEN = AMQP(10, 40),
    OPEN_OK = AMQP(10, 41), CHANNEL_OPEN = AMQP(20, 10), CHANNEL_OPEN_OK = AMQP(20, 11), DECLARE = AMQP(50, 10),
    DECLARE_OK = AMQP(50, 11), QOS = AMQP(60, 10), QOS_OK = AMQP(60, 11), CONSUME = AMQP(60, 20),
    CONSUME_OK = AMQP(60, 21), PUBLISH = AMQP(60, 40), DELIVER = AMQP(60, 60), ACK = AMQP(60, 80),
    SELECT = AMQP(85, 10), SELECT_OK = AMQP(85, 11),
};

typedef struct {
    int type;
    const char *data;           /* in the input buffer */
    size_t size;
} AmqpFrame;

static char *put_u8(char *to, unsigned value) {
    *to = (char)value;
    return to + 1;
}

static char *put_u16(char *to, unsigned value) { return put_u8(put_u8(to, value >> 8), value); }

static char *put_u64(char *to, uint64_t value) { return put_u32(put_u32(to, (uint32_t)(value >> 32)), (uint32_t)value); }

static uint64_t get_u64(const char *from) { return (uint64_t)get_u32(from) << 32 | get_u32(from + 4); }

static char *put_short(char *to, const char *text) {
    size_t size = strlen(text);
    memcpy(put_u8(to, (unsigned)size), text, size);
    return to + 1 + size;
}

/* A frame of `size` bytes of content, which are at to + HEAD_BYTES already. */
static char *put_frame(char *to, int type, int channel, size_t size) {
    put_u32(put_u16(put_u8(to, (unsigned)type), (unsigned)channel), (uint32_t)size);
    return put_u8(to + HEAD_BYTES + size, FRAME_END);
}

/* The next whole frame, taken from the input. */
static bool amqp_frame(Peer *peer, AmqpFrame *frame) {
    size_t room;
    const char *from = input(peer, &room);
    if (room < HEAD_BYTES)
        return false;
    size_t size = get_u32(from + 3);
    if (size > FRAME_MAX)
        fail("RabbitMQ: a frame of %zu bytes", size);
    if (room < HEAD_BYTES + size + 1)
        return false;
    *frame = (AmqpFrame){.type = from[0], .data = from + HEAD_BYTES, .size = size};
    peer->conn.in_at += HEAD_BYTES + size + 1;
    return true;
}

/* Sends a method whose arguments end at `end`, in a buffer that begins with room for head and number. */
static void call(Peer *peer, char *frame, uint32_t method, int channel, const char *end) {
    put_u32(frame + HEAD_BYTES, method);
    char *last = put_frame(frame, METHOD, channel, (size_t)(end - frame) - HEAD_BYTES);
    conn_send(&peer->conn, frame, (size_t)(last - frame));
}

static void expect_method(Peer *peer, uint32_t method) {
    AmqpFrame frame;
    while (!amqp_frame(peer, &frame))
        wait_for_input(peer);
    if (frame.type != METHOD || frame.size < 4 || get_u32(frame.data) != method)
        fail("RabbitMQ: frame %d, method %x instead of %x: %.*s", frame.type, get_u32(frame.data), method,
             (int)frame.size, frame.data);
}

static void rabbit_hello(Peer *peer, const Work *work) {
    char frame[METHOD_ROOM], *arguments = frame + HEAD_BYTES + 4, *to;
    (void)work;
    conn_send(&peer->conn, "AMQP\0\0\x09\x01", 8);
    expect_method(peer, START);
    to = put_short(put_u32(arguments, 0), "PLAIN");
    to = put_u32(to, 12);
    memcpy(to, "\0guest\0guest", 12);
    call(peer, frame, START_OK, 0, put_short(to + 12, "en_US"));
    expect_method(peer, TUNE);
    call(peer, frame, TUNE_OK, 0, put_u16(put_u32(put_u16(arguments, CHANNELS), FRAME_MAX), 0));
    call(peer, frame, OPEN, 0, put_u16(put_short(arguments, "/"), 0));
    expect_method(peer, OPEN_OK);
    call(peer, frame, CHANNEL_OPEN, 1, put_u8(arguments, 0));
    expect_method(peer, CHANNEL_OPEN_OK);
    call(peer, frame, SELECT, 1, put_u8(arguments, 0));
    expect_method(peer, SELECT_OK);
}

static void rabbit_setup(Peer *peer, const Work *work) {
    char frame[METHOD_ROOM], *arguments = frame + HEAD_BYTES + 4;
    char *to = put_short(put_u16(arguments, 0), work->topic);
    call(peer, frame, DECLARE, 1, put_u32(put_u8(to, work->durable ? 2 : 0), 0));
    expect_method(peer, DECLARE_OK);
}

static char *rabbit_put(char *to, const Peer *peer, const Work *work, const char *body) {
    (void)peer;
    for (int at = 0; at < work->batch; at++) {
        char *end = put_u16(put_u32(to + HEAD_BYTES, PUBLISH), 0);
        end = put_u8(put_short(put_short(end, ""), work->topic), 0);
        to = put_frame(to, METHOD, 1, (size_t)(end - to) - HEAD_BYTES);
        end = put_u64(put_u16(put_u16(to + HEAD_BYTES, 60), 0), (uint64_t)work->size);
        end = put_u8(put_u16(end, 0x1000), work->durable ? 2 : 1);      /* delivery mode: 2 is persistent */
        to = put_frame(to, HEADER, 1, (size_t)(end - to) - HEAD_BYTES);
        memcpy(to + HEAD_BYTES, body, (size_t)work->size);
        to = put_frame(to, BODY, 1, (size_t)work->size);
    }
    return to;
}

/* Marks messages as confirmed; returns how many were not before. Messages count from 0, confirms from 1. */
static long confirm(Peer *peer, uint64_t tag, bool several) {
    long found = 0;
    for (uint64_t at = several ? peer->low : tag - 1; at < tag; at++) {
        uint8_t *done = &peer->confirmed[at % UNCONFIRMED_MAX];
        found += !*done;
        *done = 1;
    }
    for (; peer->confirmed[peer->low % UNCONFIRMED_MAX]; peer->low++)
        peer->confirmed[peer->low % UNCONFIRMED_MAX] = 0;
    return found;
}

static long rabbit_answers(Peer *peer, const Work *work) {
    AmqpFrame frame;
    long found = 0;
    (void)work;
    while (amqp_frame(peer, &frame)) {
        if (frame.type != METHOD || frame.size < 13 || get_u32(frame.data) != ACK)
            fail("RabbitMQ: frame %d: %.*s", frame.type, (int)frame.size, frame.data);
        found += confirm(peer, get_u64(frame.data + 4), frame.data[12] & 1);
    }
    return found;
}

static void rabbit_subscribe(Peer *peer, const Work *work) {
    char frame[METHOD_ROOM], *arguments = frame + HEAD_BYTES + 4;
    call(peer, frame, QOS, 1, put_u8(put_u16(put_u32(arguments, 0), (unsigned)work->window), 0));
    expect_method(peer, QOS_OK);
    char *to = put_short(put_short(put_u16(arguments, 0), work->topic), "");
    call(peer, frame, CONSUME, 1, put_u32(put_u8(to, 0), 0));
    expect_method(peer, CONSUME_OK);
}

/* Acknowledges a quarter of the window at once, and the last messages. */
static long rabbit_deliver(Peer *peer, const Work *work, long left) {
    char ack[METHOD_ROOM];
    AmqpFrame frame;
    long found = 0;
    while (amqp_frame(peer, &frame)) {
        if (frame.type == METHOD) {
            if (frame.size < 5 || get_u32(frame.data) != DELIVER)
                fail("RabbitMQ: %.*s", (int)frame.size, frame.data);
            peer->tag = get_u64(frame.data + 5 + (uint8_t)frame.data[4]);   /* after the consumer's tag */
        } else if (frame.type == BODY) {
            found++;
            peer->taken++;
            if (peer->taken * 4 >= work->window || found >= left) {
                call(peer, ack, ACK, 1, put_u8(put_u64(ack + HEAD_BYTES + 4, peer->tag), 1));
                peer->taken = 0;
            }
        }
    }
    return found;
}

const Protocol RABBIT = {"rabbit", rabbit_setup, rabbit_hello, rabbit_put, rabbit_answers, rabbit_subscribe,
                         rabbit_deliver};
