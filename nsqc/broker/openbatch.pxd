# A multi-publish from its first byte to its answer: its messages, how many are published, and the result so far. Each
# connection reuses one for every batch; over HTTP each request has its own.

from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memchr
from nsqc.store.fifo cimport Entry, Fifo, fifo_pop
from nsqc.store.log.buffer cimport Buffer
from nsqc.store.message cimport Message
from nsqc.store.publishids cimport PublishId
from nsqc.store.seams cimport StoreOwner
from nsqc.store.slices cimport Slicer
from nsqc.wire.hton cimport load_i32

cdef enum:
    SIZE_BYTES = 4          # of the size before each message

cdef enum BatchSource:
    SIZED                   # each message follows its size
    LINES                   # text; empty lines do not count
    GATHERED                # messages, received one by one


cdef struct Once:
    # A publish with an id; see publishonce.pxd. All zeros: no id.
    PublishId id
    int64_t claim           # number of the id's entry while it is being published; 0: none
    int64_t failures        # count of failed commits by then
    bint asked              # the publish has an id
    bint wrote              # some of its messages went to a commit


cdef struct Part:           # one message of a batch
    Message *message        # with its reference, which the receiver takes; NULL: only the body exists
    const char *c_body
    uint32_t size


cdef class OpenBatch:
    cdef int source             # BatchSource
    cdef const char *c_data     # SIZED, LINES: the rest is c_data[at:end]; not owned
    cdef int64_t at, end        # GATHERED: at of end messages are published
    cdef int64_t count          # SIZED: messages remaining
    cdef bytes body             # owns c_data; None: the publisher does
    cdef Fifo gathered          # owned, with the references: the rest of GATHERED
    cdef uint32_t defer_ms      # of each message
    cdef StoreOwner topic      # None: none yet, or the answer was given
    cdef readonly bint open     # some messages are not published yet
    cdef bint admitted          # its topic has room for the whole batch
    cdef int result             # PutResult of the messages published so far
    cdef Once once
    cdef Buffer staged          # owned: messages so far, for a log, which appends a batch as a whole

    cdef void begin(self, StoreOwner topic, uint32_t defer_ms) noexcept
    cdef void take_sized(self, const char *c_data, int64_t at, int64_t end, int64_t count) noexcept
    cdef void take_gathered(self) noexcept
    cdef void measure(self, int64_t *count, int64_t *body_bytes) noexcept   # of the rest: messages, bytes of bodies
    # Both end the batch, and return True. end_with() drops the rest; after refuse(), the publisher retries or drops it.
    cdef bint end_with(self, int result, Slicer slicer) noexcept
    cdef bint refuse(self, int result) noexcept

    cdef inline bint more(self) noexcept:
        return self.at < self.end


# The next message, which must exist.
cdef inline void batch_next(OpenBatch batch, Part *part) noexcept:
    cdef Entry entry
    part.message = NULL
    part.c_body = batch.c_data + batch.at
    if batch.source == SIZED:
        part.size = <uint32_t> load_i32(part.c_body)
        part.c_body += SIZE_BYTES
        batch.at += SIZE_BYTES + <int64_t> part.size
        batch.count -= 1
    elif batch.source == GATHERED:
        fifo_pop(&batch.gathered, &entry)
        part.message = entry.message
        part.c_body = entry.message.body
        part.size = entry.message.size
        batch.at += 1
    else:
        part.size = <uint32_t> line_bytes(part.c_body, batch.end - batch.at)
        batch.at = next_line(batch.c_data, batch.at + part.size, batch.end)


# The length of the line that begins there.
cdef inline int64_t line_bytes(const char *c_at, int64_t most) noexcept:
    cdef const char *c_feed = <const char *> memchr(c_at, c"\n", <size_t> most)
    return most if c_feed is NULL else c_feed - c_at


# The start of the next non-empty line, or the end.
cdef inline int64_t next_line(const char *c_data, int64_t at, int64_t end) noexcept:
    while at < end and c_data[at] == c"\n":
        at += 1
    return at
