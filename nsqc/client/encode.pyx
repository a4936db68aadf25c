"""Commands as bytes: PUB and batches from bytes objects, FIN, REQ and TOUCH from ids. One copy of each body."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy

from nsqc.wire.const cimport MESSAGE_ID_BYTES
from nsqc.wire.hton cimport store_i32

from nsqc.client.errors import BadMessage

cdef enum:
    SIZE_BYTES = 4


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
