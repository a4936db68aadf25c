# Frames that are collected for the next write. What is published within a millisecond shares a frame of up to
# FRAME_FULL bytes.

from libc.stdint cimport int64_t, uint32_t

from nsqc.store.guid cimport GuidFactory
from nsqc.store.log.buffer cimport Buffer
from nsqc.store.log.frame cimport Frame


cdef struct Frames:
    Buffer out              # closed frames, and the open one without its delays and origins; owned
    Buffer delays           # of the open frame, as it will have them; owned
    Buffer origins          # likewise: its messages are dead letters, or none of them is
    int64_t open_at         # where the open frame begins in `out`
    Frame open              # its head; 0 records: there is none
    int64_t records         # of all

# Adds a message; -1: no memory. defer_ms: its delay; 0: none. A dead letter has an origin, a JSON object of up to
# MOST_ORIGIN bytes; other messages have NULL.
cdef int frames_add(Frames *frames, GuidFactory guids, int64_t wall_ns, const char *c_body, uint32_t size,
                    uint32_t defer_ms, const char *c_origin, uint32_t origin_size) noexcept
# Adds a batch: the payload of an MPUB, checked; all of it, or with -1 (no memory) nothing. defer_ms: of each message.
cdef int frames_add_batch(Frames *frames, GuidFactory guids, int64_t wall_ns, const char *c_payload, int64_t length,
                          int64_t records, uint32_t defer_ms) noexcept
cdef void frames_close(Frames *frames, GuidFactory guids) noexcept      # before they are written
cdef void frames_free(Frames *frames) noexcept nogil
