# Bytes to clients: collected per connection, written by the flush rules in the .pxd.

from libc.stdint cimport int32_t, int64_t, uint16_t

from nsqc.broker.channel cimport Consumer
from nsqc.loop.uv cimport Hooks
from nsqc.store.message cimport Message
from nsqc.store.work cimport Commit, CommitSchedule, LoopWork, Slicer
from nsqc.wire.codecs cimport Codec
from nsqc.wire.framer cimport SendBuf


# ====================================================================== gather
# Unsent output of a connection: bytes, and among them large bodies that stay in their messages.
#
#   bytes      [ head ][ OK, head, small frame ][ head ] . . .
#   bodies             ^body                   ^body    ^body      each after its number of bytes
#
# It owns a reference for each body until the body is sent.

cdef extern from "<sys/uio.h>":
    struct iovec:
        void *iov_base
        size_t iov_len

cdef struct Body:
    Message *message    # owned
    Py_ssize_t at       # bytes of buf before it, including sent ones

cdef struct Gather:
    SendBuf buf         # owned
    Py_ssize_t buf_at   # bytes of it sent
    Body *bodies        # owned, as are their messages; items from first to before end are unsent
    int first, end, room
    Py_ssize_t body_at  # sent bytes of the first of them
    Py_ssize_t body_bytes   # unsent bytes of all of them

cdef inline Py_ssize_t gather_bytes(const Gather *gather) noexcept nogil:
    return gather.buf.length - gather.buf_at + gather.body_bytes


# ====================================================================== outbox
# The unsent output of one connection, and when it is sent. All flush rules are here:
#
#   size       a buffer that has reached output_buffer_size and FLUSH_BYTES is sent at once
#   iteration  the rest is sent at the end of the loop iteration
#   timeout    with output-buffer-flush=timeout, as with nsqd: a message waits for output_buffer_timeout while its
#              client has room under RDY; a reply, or the last message that RDY allows, is sent with all before it
#   hold       output after a reply that depends on a disk write is sent when that write has ended
#
# A full socket blocks the outbox: its session stops being ready, and above max_buffered_bytes of replies its input is
# left unread, until the transport has sent all its bytes.

cdef struct EndState:           # read without the GIL
    bint due                    # Iteration.end() has to run before the loop waits
    void *iteration             # borrowed; NULL: gone


cdef class Iteration:
    # A loop iteration for all connections: reads input for a limited time, and sends the collected output at the end.
    cdef Hooks *hooks           # NULL: the loop calls end() like any callback, which takes longer than a PUB
    cdef EndState *state        # owned by the hooks
    cdef Slicer slicer
    cdef CommitSchedule commits     # begun before the output is sent: they answer many publishes at once
    cdef object loop
    cdef list due               # outboxes to flush at the end of the iteration
    cdef bint scheduled
    cdef bint queued            # a transport has output, which it sends in the loop's callbacks only
    cdef bint reading           # read_until_ns counts
    cdef int64_t read_until_ns  # monotonic: stop reading then, for this iteration
    cdef readonly bint waits    # output-buffer-flush=timeout

    cdef void schedule(self) noexcept
    cdef void begin_reading(self, int64_t now_ns) noexcept      # the slice that handles input
    cdef bint read_enough(self) noexcept
    cdef void _end_before_wait(self) noexcept
    cdef void _send_due(self, int64_t until_ns) noexcept


cdef class Outbox:
    cdef Gather gather          # owned: unsent output
    cdef Iteration iteration
    cdef object transport
    cdef Codec codec            # None: not compressed
    cdef object timer           # runs while messages wait for the timeout
    cdef int fd                 # of a plain socket, for direct writes; -1: write through the transport
    cdef Py_ssize_t size        # output_buffer_size
    cdef int64_t timeout_ms     # output_buffer_timeout; 0: none
    cdef bint due               # in iteration.due
    cdef bint blocked           # the transport has bytes that the socket did not accept
    cdef bint closed
    cdef Py_ssize_t refused     # unsent bytes here when the socket first became full
    cdef readonly int64_t sent_bytes    # before compression; offset in all output of the unsent part
    cdef int64_t hold           # offset in all output of the held part; -1: none is held

    @staticmethod
    cdef Outbox new(Iteration iteration, object transport, int fd, Py_ssize_t size, int64_t timeout_ms)

    cdef void reply(self, int32_t frame_type, const char *c_data, Py_ssize_t length) noexcept
    # room: whether the client may get more messages after this one
    cdef void message(self, Message *message, uint16_t attempts, bint room) noexcept
    cdef void flush(self) noexcept
    cdef Py_ssize_t bytes(self) noexcept            # unsent, excluding those in the transport
    cdef Py_ssize_t unread_bytes(self) noexcept     # of those, bytes added since the socket became full
    cdef int64_t end(self) noexcept                 # offset in all output of the next reply
    cdef void cut(self, int64_t at) noexcept        # drops output from that offset on
    cdef void unblock(self) noexcept        # the transport has sent all its bytes; may block again
    cdef void unhold(self) noexcept         # `hold` has changed
    cdef void close(self) noexcept
    cdef void _due(self) noexcept
    cdef void _send(self) noexcept
    cdef void _wait(self) noexcept
    cdef void _send_plain(self, Py_ssize_t length) noexcept
    cdef Py_ssize_t _send_vector(self, Py_ssize_t length) noexcept
    cdef void _send_encoded(self, Py_ssize_t length) noexcept
    cdef void _fail(self) noexcept


# ====================================================================== marks
# Replies that depend on the disk: marks in the output of one connection. Output after a mark is sent only after its
# commit has ended.

cdef class Mark:
    cdef Commit commit
    cdef int64_t serial                 # of the commit
    cdef int64_t at                     # offset of the reply in all output
    cdef int kind                       # CommandKind of the answered command
    cdef bint settled                   # the commit has ended
    cdef int error                      # errno of the commit


cdef class Marks:
    cdef Outbox outbox
    cdef object queue                   # deque of Mark, in the order of the output; None before the first
    cdef Mark last                      # of the queue; None: it is empty

    @staticmethod
    cdef Marks new(Outbox outbox)

    # The next reply, to a command of this kind, is valid only after the collecting commit is written. commit_ended() of
    # waiter follows.
    cdef int add(self, Commit commit, int kind, LoopWork waiter) except -1
    # The same for the running commit, which must exist.
    cdef int add_running(self, Commit commit, int kind, LoopWork waiter) except -1
    cdef bint _mark(self, Commit commit, int64_t serial, int kind) except -1
    cdef void commit_ended(self, Commit commit, int error) noexcept
    # Removes settled marks. Returns the first mark whose commit failed: the output from there on is dropped, and all
    # marks. None: no commit failed.
    cdef Mark settle(self)
    cdef void clear(self) noexcept

    cdef inline bint waits(self) noexcept:
        return bool(self.queue)
