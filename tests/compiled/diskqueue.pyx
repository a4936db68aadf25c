"""A disk queue and the records of its files (nsqc.store.disk), driven from Python."""

import os

from libc.stdint cimport int64_t, uint16_t
from libc.string cimport memset
from posix.fcntl cimport O_RDONLY
from posix.unistd cimport close

from nsqc.store.disk.fileio cimport io_open, io_size
from nsqc.store.disk.queue cimport DiskQueue, is_drained, pop_buffer
from nsqc.store.disk.segment cimport (HEAD_BYTES, Block, Window, block_read, head_plausible, record_load, record_store,
                                      segment_next, window_free)
from nsqc.store.message cimport Message, message_new, message_unref
from nsqc.wire.const cimport MESSAGE_ID_BYTES


# ====================================================================== diskqueue
# get() also returns buffered records, which a backlog never asks for.


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


# ====================================================================== segment


def store(bytes body not None, bytes message_id not None, int64_t timestamp_ns, uint16_t attempts) -> bytes:
    """A message as a record."""
    cdef Message *message = message_new(message_id, timestamp_ns, body, <unsigned int> len(body))
    record = bytearray(HEAD_BYTES + len(body))
    record_store(record, message, attempts)
    message_unref(message)
    return bytes(record)


def load(bytes record not None):
    """(body, message_id, timestamp_ns, attempts) of a whole record."""
    cdef uint16_t attempts
    cdef Message *message = record_load(record, &attempts)
    if message is NULL:
        raise MemoryError
    fields = (message.body[:message.size], message.id[:MESSAGE_ID_BYTES], message.timestamp_ns, attempts)
    message_unref(message)
    return fields


def is_plausible(bytes head not None, int64_t max_bytes) -> bool:
    """Whether a record may begin with this head."""
    if len(head) < HEAD_BYTES:
        raise ValueError("a head has 30 bytes")
    return head_plausible(head, max_bytes)


def walk(str path not None, int64_t max_bytes, int64_t at = 0) -> list:
    """(offset, length) of each record from an offset on. Raises OSError."""
    cdef Window window
    cdef int64_t begin = 0, length = 0
    cdef int answer = 1
    cdef bytes name = os.fsencode(path)
    cdef int fd = io_open(name, O_RDONLY)
    if fd < 0:
        raise OSError(-fd, os.strerror(-fd), path)
    memset(&window, 0, sizeof(window))
    window.limit = io_size(fd)
    places = []
    while answer == 1:
        answer = segment_next(&window, fd, max_bytes, at, &begin, &length)
        if answer == 1:
            places.append((begin, length))
            at = begin + length
    window_free(&window)
    close(fd)
    if answer < 0:
        raise OSError(-answer, os.strerror(-answer), path)
    return places


def block(str path not None, int64_t at, int64_t limit, int64_t max_bytes, int64_t want):
    """(answer, start of the first record, size of all its records) of one read."""
    cdef Block result
    cdef bytes name = os.fsencode(path)
    block_read(&result, name, at, limit, max_bytes, want)
    records = b""
    if result.answer == 1:
        records = result.window.c_data[result.begin - result.window.start:result.end - result.window.start]
    window_free(&result.window)
    return result.answer, result.begin, records
