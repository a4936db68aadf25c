"""Frames of the Python client: received messages in columns, published commands. See the .pyi."""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MAX, int32_t, int64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove

from nsqc.client.envelope import parted
from nsqc.client.errors import BadMessage, ConnectError
from nsqc.wire.const cimport FRAME_HEAD_BYTES, FRAME_MESSAGE, MESSAGE_HEAD_BYTES, MESSAGE_ID_BYTES
from nsqc.wire.hton cimport load_i32, load_i64, load_u16, store_i32


# ====================================================================== chunk

cdef Py_ssize_t chunks_alive = 0


@cython.final
cdef class Chunk:
    """Bytes that compiled code appends to; read-only for Python."""

    def __cinit__(self):
        global chunks_alive
        chunks_alive += 1

    def __dealloc__(self):
        global chunks_alive
        chunks_alive -= 1
        free(self.c_data)

    cdef char *more(self, Py_ssize_t need) except NULL:
        cdef Py_ssize_t room = self.length + need
        cdef char *c_grown
        if self.lent:
            raise BufferError("a chunk cannot grow while it is lent")
        if room > self.room or self.c_data is NULL:
            room = max(room, 2 * self.room, 1024)
            c_grown = <char *> realloc(self.c_data, <size_t> room)
            if c_grown is NULL:
                raise MemoryError
            self.c_data = c_grown
            self.room = room
        self.length += need
        return self.c_data + self.length - need

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        if self.c_data is NULL:
            self.more(0)    # an empty buffer needs an address, too
        PyBuffer_FillInfo(buffer, self, self.c_data, self.length, 1, flags)
        self.lent += 1

    def __releasebuffer__(self, Py_buffer *buffer):
        self.lent -= 1

    def __len__(self):
        return self.length


def alive() -> int:
    """Number of existing chunks."""
    return chunks_alive


# ====================================================================== message
# Single messages for applications; columns are faster for many.

@cython.final
cdef class Message:
    """A delivered message: body, id, timestamp_ns (publication), attempts. Finish or requeue it within the message
    timeout, or nsqd delivers it again; a second answer is ignored.

    `with message:` finishes it at the end of the block, and requeues it at once if the block raises, unless it was
    answered inside. It works the same with the blocking client and asyncio's.
    """

    @property
    def headers(self) -> dict:
        """The headers that with_headers() has put before the body; empty without."""
        return parted(self.body)[0]

    @property
    def payload(self) -> bytes:
        """The body without its headers."""
        return parted(self.body)[1]

    @property
    def nsqd(self) -> str:
        """The address of the nsqd that delivered it."""
        return self.connection.address

    def finish(self) -> None:
        """FIN: the message is done. Raises ConnectError."""
        if self._answer():
            self.connection.finish_ids(self.id)

    def requeue(self, delay_ms: int = 0) -> None:
        """REQ: nsqd delivers it again after delay_ms milliseconds. Raises ConnectError."""
        if self._answer():
            try:
                self.connection.requeue_ids(self.id, delay_ms)
            except (TypeError, ValueError, OverflowError):      # an invalid delay does not answer the message
                self.answered = False
                raise

    def move_to(self, topic: str, reason: str = "given_up") -> bool:
        """DEAD: nsqc moves the message to a topic of dead letters, with its origin and this reason, a name. False: an
        nsqd that does not know this; the message is unanswered. Raises ConnectError, BadName, ValueError."""
        if not self.answered:
            self.answered = self.connection.move_id(self.id, topic, reason)
        return self.answered

    def touch(self) -> None:
        """TOUCH: restarts its timeout. Raises ConnectError."""
        if not self.answered:
            self.connection.touch_id(self.id)

    def __enter__(self) -> Message:
        return self

    def __exit__(self, kind, error, trace) -> None:
        """Raises ConnectError if the connection is lost, unless the block raised."""
        if kind is None:
            self.finish()
            return
        try:
            self.requeue()
        except ConnectError:
            pass    # nsqd delivers it again anyway, and the error of the block matters more

    cdef bint _answer(self) except -1:
        if self.answered:
            return False
        self.answered = True
        return True

    def __repr__(self) -> str:
        return f"<Message {self.id.decode()} of {len(self.body)} bytes, attempt {self.attempts}>"


def messages(tuple columns not None, connection) -> list:
    """A Message for each row of Inflow.columns()."""
    cdef Py_ssize_t count = columns[0], row
    cdef Chunk bodies = columns[1], offsets = columns[2], times = columns[3], attempts = columns[4], ids = columns[5]
    cdef const int32_t *c_offsets = <const int32_t *> offsets.c_data
    cdef Message message
    cdef list received = []
    for row in range(count):
        message = Message.__new__(Message)
        message.body = PyBytes_FromStringAndSize(bodies.c_data + c_offsets[row], c_offsets[row + 1] - c_offsets[row])
        message.id = PyBytes_FromStringAndSize(ids.c_data + row * MESSAGE_ID_BYTES, MESSAGE_ID_BYTES)
        message.timestamp_ns = (<const int64_t *> times.c_data)[row]
        message.attempts = (<const int32_t *> attempts.c_data)[row]
        message.connection = connection
        received.append(message)
    return received


# ====================================================================== inflow
# The stream of one nsqd, cut into frames: messages become columns, all other frames small Python objects.
#
# The buffer protocol lends the free end of the receive area to socket.recv_into; fed() then takes the byte count.
# feed() copies bytes received in another way.

cdef enum:
    AREA_BYTES = 256 * 1024
    SIZE_BYTES = 4
    TYPE_BYTES = 4


class BadStream(ValueError):
    """Bytes that are not frames of nsqd."""


@cython.final
cdef class Inflow:
    """max_frame: the largest frame to accept, in bytes after its size field. tick_ns: the unit of timestamps in
    columns(), in nanoseconds."""

    cdef char *c_data           # owned: the receive area
    cdef Py_ssize_t room        # bytes allocated
    cdef Py_ssize_t begin, end  # of the received bytes not cut yet
    cdef Py_ssize_t lent
    cdef Py_ssize_t max_frame   # bytes after a frame's size field
    cdef int64_t tick_ns        # unit of the timestamps in columns()
    cdef Chunk bodies, offsets, times, attempts, ids
    cdef readonly Py_ssize_t rows       # messages collected
    cdef readonly int64_t oldest        # smallest timestamp among them, nanoseconds
    cdef readonly list replies          # (type, data) of responses and errors, in order; the reader clears it

    def __cinit__(self, Py_ssize_t max_frame, int64_t tick_ns = 1):
        if tick_ns < 1:
            raise ValueError("a tick lasts at least a nanosecond")
        self.max_frame = max_frame
        self.tick_ns = tick_ns
        self.room = AREA_BYTES
        self.c_data = <char *> malloc(<size_t> self.room)
        if self.c_data is NULL:
            raise MemoryError
        self.replies = []
        self._fresh()

    def __dealloc__(self):
        free(self.c_data)

    cdef int _fresh(self) except -1:
        self.bodies, self.offsets, self.times = Chunk(), Chunk(), Chunk()
        self.attempts, self.ids = Chunk(), Chunk()
        (<int32_t *> self.offsets.more(4))[0] = 0
        self.rows = 0
        self.oldest = INT64_MAX
        return 0

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.c_data + self.end, self.room - self.end, 0, flags)
        self.lent += 1

    def __releasebuffer__(self, Py_buffer *buffer):
        self.lent -= 1

    def feed(self, const unsigned char[::1] data not None) -> None:
        """Takes bytes that were not received into the lent end. Raises BadStream."""
        cdef Py_ssize_t at = 0, count
        while at < data.shape[0]:
            count = min(self.room - self.end, data.shape[0] - at)
            memcpy(self.c_data + self.end, &data[at], <size_t> count)
            at += count
            self.fed(count)

    def fed(self, Py_ssize_t count) -> None:
        """Takes the first count bytes of the lent end. Raises BadStream."""
        cdef Py_ssize_t size
        cdef int kind
        if not 0 <= count <= self.room - self.end or self.lent:
            raise BufferError("more than was lent, or still lent")
        self.end += count
        while self.end - self.begin >= SIZE_BYTES:
            size = load_i32(self.c_data + self.begin)
            # Before any object is created for it: _make_room() relies on that.
            if size < TYPE_BYTES or size > self.max_frame:
                raise BadStream(f"a frame of {size} bytes, {self.max_frame} are allowed")
            if self.end - self.begin < SIZE_BYTES + size:
                break
            kind = load_i32(self.c_data + self.begin + SIZE_BYTES)
            if kind == FRAME_MESSAGE:
                self._message(self.c_data + self.begin + FRAME_HEAD_BYTES, size - TYPE_BYTES)
            else:
                self.replies.append((kind, self.c_data[self.begin + FRAME_HEAD_BYTES:self.begin + SIZE_BYTES + size]))
            self.begin += SIZE_BYTES + size
        self._make_room()

    cdef int _make_room(self) except -1:
        """Moves an incomplete frame to the front; grows the area if the frame does not fit."""
        cdef Py_ssize_t rest = self.end - self.begin, need = AREA_BYTES
        cdef char *c_grown
        if rest >= SIZE_BYTES:
            need = max(need, SIZE_BYTES + <Py_ssize_t> load_i32(self.c_data + self.begin))
        if self.begin:
            memmove(self.c_data, self.c_data + self.begin, <size_t> rest)
            self.begin, self.end = 0, rest
        if need > self.room or (self.room > 4 * AREA_BYTES and need == AREA_BYTES):
            c_grown = <char *> realloc(self.c_data, <size_t> need)
            if c_grown is NULL:
                raise MemoryError
            self.c_data = c_grown
            self.room = need
        return 0

    cdef int _message(self, const char *c_at, Py_ssize_t length) except -1:
        cdef Py_ssize_t size = length - MESSAGE_HEAD_BYTES
        cdef int64_t time
        if size < 0:
            raise BadStream(f"a message of {length} bytes")
        if self.bodies.length + size > 0x7F000000:
            raise BufferError("too many bytes of messages collected")
        time = load_i64(c_at)
        self.oldest = min(self.oldest, time)
        (<int64_t *> self.times.more(8))[0] = time // self.tick_ns
        (<int32_t *> self.attempts.more(4))[0] = load_u16(c_at + 8)
        memcpy(self.ids.more(MESSAGE_ID_BYTES), c_at + 10, MESSAGE_ID_BYTES)
        memcpy(self.bodies.more(size), c_at + MESSAGE_HEAD_BYTES, <size_t> size)
        (<int32_t *> self.offsets.more(4))[0] = <int32_t> self.bodies.length
        self.rows += 1
        return 0

    @property
    def bytes(self) -> int:
        """Size of the collected bodies."""
        return self.bodies.length

    def columns(self) -> tuple:
        """Takes the collected messages: (count, bodies, body offsets, timestamps, attempts, ids); offsets int32, one
        more than messages; timestamps int64 in ticks; attempts int32; ids 16 bytes each."""
        columns = (self.rows, self.bodies, self.offsets, self.times, self.attempts, self.ids)
        self._fresh()
        return columns


# ====================================================================== encode
# Commands as bytes: PUB and batches from bytes objects, FIN, REQ and TOUCH from ids. One copy of each body.


cdef bytes as_bytes(body, Py_ssize_t index, int64_t max_msg_size):
    """A body as bytes, copied if it has another type. Raises BadMessage, TypeError."""
    if PyBytes_CheckExact(body):
        pass
    elif isinstance(body, (bytes, bytearray)):
        body = bytes(body)
    elif isinstance(body, memoryview):
        # For any item type and memory layout: the result of its own tobytes().
        body = body.tobytes()
    elif isinstance(body, str):
        raise TypeError(f"message {index} is str, not bytes: encode it, as in 'text'.encode()")
    else:
        raise TypeError(f"message {index} is {type(body).__name__}, not bytes, bytearray or memoryview")
    cdef int64_t size = PyBytes_GET_SIZE(body)
    if size == 0:
        raise BadMessage(index, "is empty")
    if size > max_msg_size:
        raise BadMessage(index, f"has {size} bytes, {max_msg_size} are allowed")
    return <bytes> body


def checked(body, int64_t max_msg_size) -> bytes:
    """One body as bytes. Raises BadMessage if nsqd would refuse it, TypeError if it is not a body."""
    return as_bytes(body, 0, max_msg_size)


def all_checked(bodies, int64_t max_msg_size) -> tuple:
    """All bodies of an iterable as bytes. Raises BadMessage for the first one that nsqd would refuse, TypeError if one
    is not a body, and the iterable's exceptions."""
    cdef list checked_bodies = []
    if isinstance(bodies, (bytes, bytearray, memoryview, str)):
        raise TypeError(f"bodies is {type(bodies).__name__}: it takes an iterable of bodies, not a single one")
    for body in bodies:
        # Copied at once: a generator may reuse the same bytearray.
        checked_bodies.append(as_bytes(body, len(checked_bodies), max_msg_size))
    return tuple(checked_bodies)


def pub(bytes topic not None, bytes body not None) -> bytes:
    """PUB."""
    return with_body(b"PUB " + topic + b"\n", body)


def batch(bytes line not None, tuple bodies not None, Py_ssize_t start, Py_ssize_t max_rows,
          int64_t max_bytes) -> tuple:
    """A batch of bodies from start on, after the line of its command: (command, index after the last). At least one
    body, otherwise within both limits; max_bytes counts the body of the command. bodies: from all_checked."""
    cdef Py_ssize_t end = start, index, count = len(bodies)
    cdef int64_t size = SIZE_BYTES, record
    cdef bytes command, body
    cdef char *c_to
    if not 0 <= start < count:
        raise IndexError(start)
    while end < count and end - start < max(max_rows, 1):
        record = SIZE_BYTES + PyBytes_GET_SIZE(<bytes?> bodies[end])
        if end > start and size + record > max_bytes:
            break
        size += record
        end += 1
    command = PyBytes_FromStringAndSize(NULL, <Py_ssize_t> (len(line) + SIZE_BYTES + size))
    c_to = PyBytes_AS_STRING(command)
    memcpy(c_to, <const char *> line, <size_t> len(line))
    c_to += len(line)
    store_i32(c_to, <int32_t> size)
    store_i32(c_to + SIZE_BYTES, <int32_t> (end - start))
    c_to += 2 * SIZE_BYTES
    for index in range(start, end):
        body = <bytes?> bodies[index]
        record = PyBytes_GET_SIZE(body)
        store_i32(c_to, <int32_t> record)
        memcpy(c_to + SIZE_BYTES, PyBytes_AS_STRING(body), <size_t> record)
        c_to += SIZE_BYTES + record
    return command, end


cpdef bytes with_body(bytes line, bytes body):
    """A command with a body."""
    cdef char size[4]
    store_i32(size, <int32_t> len(body))
    return line + size[:4] + body


def finish(const unsigned char[::1] ids not None) -> bytes:
    """FIN for each of the ids, 16 bytes each."""
    return for_each(b"FIN ", ids, b"\n")


def requeue(const unsigned char[::1] ids not None, int64_t delay_ms = 0) -> bytes:
    """REQ after delay_ms milliseconds for each of the ids."""
    return for_each(b"REQ ", ids, b" %d\n" % delay_ms)


def touch(const unsigned char[::1] ids not None) -> bytes:
    """TOUCH for each of the ids."""
    return for_each(b"TOUCH ", ids, b"\n")


cdef bytes for_each(bytes head, const unsigned char[::1] ids, bytes tail):
    cdef Py_ssize_t count = ids.shape[0] // MESSAGE_ID_BYTES, at
    cdef Py_ssize_t c_head = len(head), c_tail = len(tail)
    cdef const char *c_begin = head
    cdef const char *c_end = tail
    cdef bytes commands = PyBytes_FromStringAndSize(NULL, count * (c_head + MESSAGE_ID_BYTES + c_tail))
    cdef char *c_to = PyBytes_AS_STRING(commands)
    for at in range(count):
        memcpy(c_to, c_begin, <size_t> c_head)
        memcpy(c_to + c_head, &ids[at * MESSAGE_ID_BYTES], MESSAGE_ID_BYTES)
        memcpy(c_to + c_head + MESSAGE_ID_BYTES, c_end, <size_t> c_tail)
        c_to += c_head + MESSAGE_ID_BYTES + c_tail
    return commands
