/* NSQ's protocol V2 as bytes: frames, what is in a message, and the commands that every client sends. */
#ifndef FRAMES_H
#define FRAMES_H
#include "bytes.h"
#include "report.h"
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { FRAME_RESPONSE, FRAME_ERROR, FRAME_MESSAGE };
enum { MESSAGE_ID_AT = 10, MESSAGE_BODY_AT = 26 };      /* within a message frame's data: time 8, attempts 2, id 16 */
enum { MAX_FRAME_BYTES = 64 << 20, FIN_BYTES = 21, IDENTIFY_MAX_BYTES = 512 };

typedef struct {
    uint32_t type;
    const char *data;           /* in the buffer it was found in, until that is written to */
    size_t size;
} Frame;

/* The frame at `from`, of which `size` bytes are there; its size with the size field, 0 where it is incomplete. */
static inline size_t frame_at(const char *from, size_t size, Frame *frame) {
    if (size < 8)
        return 0;
    size_t length = get_u32(from);
    if (length < 4 || length > MAX_FRAME_BYTES) {
        errno = 0;
        fail("a frame of %zu bytes", length);
    }
    if (size < 4 + length)
        return 0;
    *frame = (Frame){.type = get_u32(from + 4), .data = from + 8, .size = length - 4};
    return 4 + length;
}

static inline bool is_heartbeat(const Frame *frame) {
    return frame->type == FRAME_RESPONSE && frame->size == 11 && !memcmp(frame->data, "_heartbeat_", 11);
}

/* Ends the program where the server reports an error. */
static inline void refuse_error(const Frame *frame) {
    if (frame->type != FRAME_ERROR)
        return;
    errno = 0;
    fail("error from the server: %.*s", (int)frame->size, frame->data);
}

/* The FIN of a message. Returns the end. */
static inline char *put_fin(char *to, const Frame *message) {
    memcpy(to, "FIN ", 4);
    memcpy(to + 4, message->data + MESSAGE_ID_AT, 16);
    to[20] = '\n';
    return to + FIN_BYTES;
}

/* The magic and an IDENTIFY with that JSON, of at most IDENTIFY_MAX_BYTES in all. Returns the end. */
static inline char *put_identify(char *to, const char *json) {
    size_t size = strlen(json);
    memcpy(to, "  V2IDENTIFY\n", 13);
    to = put_u32(to + 13, (uint32_t)size);
    memcpy(to, json, size);
    return to + size;
}
#endif
