/* Publishes or consumes over one connection of a kind and prints a line of JSON.
 *
 *   ways pub PORT WAY COUNT TOPIC FILE BATCH   sends FILE, one MPUB of BATCH messages encoded for WAY, again and again
 *   ways sub PORT WAY COUNT TOPIC CHANNEL RDY  takes and finishes COUNT messages
 *
 * WAY: plain, tls, deflate, snappy, tls+deflate, tls+snappy.
 */
#include "wire.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 4, FIN_BYTES = 21 };

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

static void publish(Wire *w, long count, const char *path, long batch) {
    size_t size;
    char *request = read_file(path, &size);
    long sent = 0, open = 0;
    while (sent < count || open) {
        if (sent < count && open < WINDOW) {
            wire_send_coded(w, request, size);
            sent += batch;
            open++;
            continue;
        }
        wire_wait_ok(w);
        open--;
    }
    free(request);
}

static void consume(Wire *w, long count, const char *topic, const char *channel, long rdy) {
    char line[256];
    long taken = 0, due = 0;
    char *fins = malloc((size_t)rdy * FIN_BYTES);
    Frame frame;
    wire_send(w, line, (size_t)snprintf(line, sizeof line, "SUB %s %s\n", topic, channel));
    wire_wait_ok(w);
    wire_send(w, line, (size_t)snprintf(line, sizeof line, "RDY %ld\n", rdy));
    while (taken < count) {
        while (wire_frame(w, &frame)) {
            if (frame.type != FRAME_MESSAGE)
                continue;
            char *fin = fins + due * FIN_BYTES;
            memcpy(fin, "FIN ", 4);
            memcpy(fin + 4, frame.data + MESSAGE_ID_AT, 16);
            fin[20] = '\n';
            taken++;
            if (++due >= rdy / 4) {
                wire_send(w, fins, (size_t)due * FIN_BYTES);
                due = 0;
            }
        }
        if (due && !wire_has_more(w)) {
            wire_send(w, fins, (size_t)due * FIN_BYTES);
            due = 0;
        }
        if (taken < count)
            wire_receive(w);
    }
    wire_send(w, fins, (size_t)due * FIN_BYTES);
    free(fins);
    /* Everything is finished when the answer to CLS is there. */
    wire_send(w, "CLS\n", 4);
    do
        while (!wire_frame(w, &frame))
            wire_receive(w);
    while (frame.type != FRAME_RESPONSE);
}

int main(int argc, char **argv) {
    if (argc != 8)
        fail("see the head of ways.c for the arguments");
    const char *way = argv[3];
    long count = atol(argv[4]);
    Codec codec = strstr(way, "deflate") ? DEFLATE : strstr(way, "snappy") ? SNAPPY : NO_CODEC;
    Wire wire;
    wire_open(&wire, atoi(argv[2]), strstr(way, "tls") != NULL, codec);
    int64_t began = now_ns();
    if (!strcmp(argv[1], "pub"))
        publish(&wire, count, argv[6], atol(argv[7]));
    else
        consume(&wire, count, argv[5], argv[6], atol(argv[7]));
    printf("{\"messages\": %ld, \"seconds\": %.6f}\n", count, (double)(now_ns() - began) / 1e9);
    return 0;
}
