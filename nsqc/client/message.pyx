"""Single messages for applications; columns are faster for many."""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t

from nsqc.client.chunk cimport Chunk
from nsqc.wire.const cimport MESSAGE_ID_BYTES

from nsqc.client.errors import ConnectError


@cython.final
cdef class Message:
    """A delivered message: body, id, timestamp_ns (publication), attempts. Finish or requeue it within the message
    timeout, or nsqd delivers it again; a second answer is ignored.

    `with message:` finishes it at the end of the block, and requeues it at once if the block raises, unless it was
    answered inside. It works the same with the blocking client and asyncio's.
    """

    def finish(self) -> None:
        """FIN: the message is done. Raises ConnectError."""
        if self._answer():
            self.connection.finish_ids(self.id)

    def requeue(self, delay_ms: int = 0) -> None:
        """REQ: nsqd delivers it again after delay_ms milliseconds. Raises ConnectError."""
        if self._answer():
            try:
                self.connection.requeue_ids(self.id, delay_ms)
            except (TypeError, ValueError, OverflowError):      # an invalid delay is no answer
                self.answered = False
                raise

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
