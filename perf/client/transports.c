/* Publishing and consuming over one connection: in the clear, under TLS, deflated, in snappy. */
#include "load.h"
#include "stream.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 4 };

static char *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END))
        fail("cannot read %s", path);
    *size = (size_t)ftell(file);
    rewind(file);
    char *data = malloc(*size);
    if (!data || fread(data, 1, *size, file) != *size)
        fail("cannot read %s", path);
    fclose(file);
    return data;
}

static void publish(Stream *s, long count, const char *path, long batch) {
    size_t size;
    char *request = read_file(path, &size);
    long sent = 0, open = 0;
    while (sent < count || open) {
        if (sent < count && open < WINDOW) {
            stream_send_coded(s, request, size);
            sent += batch;
            open++;
            continue;
        }
        stream_wait_ok(s);
        open--;
    }
    free(request);
}

static void consume(Stream *s, long count, const char *topic, const char *channel, long rdy) {
    char line[256];
    long received = 0, due = 0;
    char *fins = malloc((size_t)rdy * FIN_BYTES);
    if (!fins)
        fail("no memory");
    Frame frame;
    stream_send(s, line, (size_t)snprintf(line, sizeof line, "SUB %s %s\n", topic, channel));
    stream_wait_ok(s);
    stream_send(s, line, (size_t)snprintf(line, sizeof line, "RDY %ld\n", rdy));
    while (received < count) {
        while (stream_frame(s, &frame)) {
            if (frame.type != FRAME_MESSAGE)
                continue;
            put_fin(fins + due * FIN_BYTES, &frame);
            received++;
            if (++due >= rdy / 4) {
                stream_send(s, fins, (size_t)due * FIN_BYTES);
                due = 0;
            }
        }
        if (due && !stream_has_more(s)) {
            stream_send(s, fins, (size_t)due * FIN_BYTES);
            due = 0;
        }
        if (received < count)
            stream_receive(s);
    }
    stream_send(s, fins, (size_t)due * FIN_BYTES);
    free(fins);
    /* Everything is finished when the answer to CLS is there. */
    stream_send(s, "CLS\n", 4);
    do
        while (!stream_frame(s, &frame))
            stream_receive(s);
    while (frame.type != FRAME_RESPONSE);
}

static void print_seconds(const Load *load, int64_t began) {
    printf("{\"messages\": %ld, \"seconds\": %.6f}\n", load->count, (double)(now_ns() - began) / 1e9);
}

static void open_transport(Stream *s, const Load *load) {
    Codec codec = strstr(load->transport, "deflate") ? DEFLATE : strstr(load->transport, "snappy") ? SNAPPY : NO_CODEC;
    stream_open(s, load->port, strstr(load->transport, "tls") != NULL, codec);
}

void run_transport_pub(const Load *load) {
    Stream stream;
    open_transport(&stream, load);
    int64_t began = now_ns();
    publish(&stream, load->count, load->file, load->batch);
    print_seconds(load, began);
}

void run_transport_sub(const Load *load) {
    Stream stream;
    open_transport(&stream, load);
    int64_t began = now_ns();
    consume(&stream, load->count, load->topic, load->channel, load->rdy);
    print_seconds(load, began);
}
