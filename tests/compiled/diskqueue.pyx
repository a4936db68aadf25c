"""Records of a disk queue (nsqc.store.disk.queue), in and out from Python.

get() also returns buffered records, which a backlog never asks for.
"""

from libc.stdint cimport uint16_t

from nsqc.store.disk.queue cimport DiskQueue, is_drained, pop_buffer
from nsqc.store.message cimport Message, message_new, message_unref
from nsqc.wire.const cimport MESSAGE_ID_BYTES


def put(DiskQueue queue not None, bytes body not None, bytes message_id not None, timestamp_ns: int, attempts: int = 0):
    """Adds a record to the buffer; message_id has 16 digits."""
    cdef Message *message
    if len(message_id) != MESSAGE_ID_BYTES:
        raise ValueError("a message id has 16 bytes")
    message = message_new(message_id, timestamp_ns, body, <unsigned int> len(body))
    if message is NULL:
        raise MemoryError
    try:
        if queue.append(message, attempts, NULL) < 0:
            raise MemoryError
    finally:
        message_unref(message)


def get(DiskQueue queue not None):
    """The oldest record as (body, message_id, timestamp_ns, attempts); None if there is none."""
    cdef uint16_t attempts
    cdef Message *message = queue.pop(&attempts)
    if message is NULL and not queue.read_error and is_drained(queue):
        message = pop_buffer(queue, &attempts)
    if message is NULL:
        return None
    fields = (message.body[:message.size], message.id[:MESSAGE_ID_BYTES], message.timestamp_ns, attempts)
    message_unref(message)
    return fields


def commit(DiskQueue queue not None) -> int:
    """Writes the buffer of a queue whose pool has no threads; 0 or errno."""
    queue.write_error = 0
    queue.begin_write(False)
    return queue.write_error


def rollback(DiskQueue queue not None) -> int:
    """Drops the buffer; returns the number of records."""
    return queue.discard(NULL)
