# Collects frames for the next write. Messages published within a millisecond share a frame of up to FRAME_FULL bytes.

from libc.stdint cimport int64_t, uint32_t

from nsqc.store.guid cimport GuidFactory
from nsqc.store.log.buffer cimport Buffer
from nsqc.store.log.frame cimport Frame


cdef struct Frames:
    Buffer out              # closed frames, and the open one without its delays and origins; owned
    Buffer delays           # of the open frame, in their final form; owned
    Buffer origins          # likewise: either all its messages are dead letters, or none
    int64_t open_at         # where the open frame begins in `out`
    Frame open              # its head; 0 records: no frame is open
    int64_t records         # total

# Adds a message; -1: no memory. defer_ms: its delay; 0: none. c_origin: of a dead letter, a JSON object of up to
# MOST_ORIGIN bytes; NULL for other messages.
cdef int frames_add(Frames *frames, GuidFactory guids, int64_t wall_ns, const char *c_body, uint32_t size,
                    uint32_t defer_ms, const char *c_origin, uint32_t origin_size) noexcept
# Adds a batch, the checked payload of an MPUB: all of it, or none with -1 (no memory). defer_ms: of each message.
cdef int frames_add_batch(Frames *frames, GuidFactory guids, int64_t wall_ns, const char *c_payload, int64_t length,
                          int64_t records, uint32_t defer_ms) noexcept
cdef void frames_close(Frames *frames, GuidFactory guids) noexcept      # call before writing them
cdef void frames_free(Frames *frames) noexcept nogil
