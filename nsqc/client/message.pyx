"""Messages one by one, for applications; whoever wants many takes columns."""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t

from nsqc.client.chunk cimport Chunk
from nsqc.wire.const cimport MESSAGE_ID_BYTES

from nsqc.client.errors import ConnectError


@cython.final
cdef class Message:
    """A delivered message: body, id, timestamp_ns (publication), attempts. Finish or requeue it within the message
    time-out, or it comes again; the second answer to a message is ignored.

    `with message:` finishes it at the end of the block, and requeues it at once where the block raises, unless it was
    answered within. The client that it came from, blocking or asyncio's, makes no difference.
    """

    def finish(self) -> None:
        """FIN: it is done. Raises ConnectError."""
        if self._answer():
            self.connection.finish_ids(self.id)

    def requeue(self, delay_ms: int = 0) -> None:
        """REQ: it is to come again, after delay_ms milliseconds. Raises ConnectError."""
        if self._answer():
            self.connection.requeue_ids(self.id, delay_ms)

    def touch(self) -> None:
        """TOUCH: its time-out begins anew. Raises ConnectError."""
        if not self.answered:
            self.connection.touch_id(self.id)

    def __enter__(self) -> Message:
        return self

    def __exit__(self, kind, error, trace) -> None:
        """Raises ConnectError where the connection is gone, unless the block raised itself."""
        if kind is None:
            self.finish()
            return
        try:
            self.requeue()
        except ConnectError:
            pass    # it comes again all the same, and what the block raised matters more

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
    cdef list found = []
    for row in range(count):
        message = Message.__new__(Message)
        message.body = PyBytes_FromStringAndSize(bodies.c_data + c_offsets[row], c_offsets[row + 1] - c_offsets[row])
        message.id = PyBytes_FromStringAndSize(ids.c_data + row * MESSAGE_ID_BYTES, MESSAGE_ID_BYTES)
        message.timestamp_ns = (<const int64_t *> times.c_data)[row]
        message.attempts = (<const int32_t *> attempts.c_data)[row]
        message.connection = connection
        found.append(message)
    return found
