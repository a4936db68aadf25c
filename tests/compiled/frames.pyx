"""Frames (nsqc.wire.framer) from Python."""

from nsqc.wire.const cimport FRAME_ERROR, FRAME_RESPONSE
from nsqc.wire.framer cimport SendBuf, frame_bytes, frame_message, sendbuf_free


def response_frame(bytes data not None) -> bytes:
    """A response frame."""
    return frame(FRAME_RESPONSE, data)


def error_frame(bytes data not None) -> bytes:
    """An error frame."""
    return frame(FRAME_ERROR, data)


cdef bytes frame(int frame_type, bytes data):
    cdef SendBuf buf
    buf.data = NULL
    buf.length = buf.room = buf.usual = 0
    try:
        if frame_bytes(&buf, frame_type, data, len(data)) < 0:
            raise MemoryError
        return buf.data[:buf.length]
    finally:
        sendbuf_free(&buf)


def message_frames(bytes body not None, timestamp_ns: int, attempts: int, bytes message_id not None,
                   count: int = 1) -> bytes:
    """Message frames, all identical; message_id has 16 digits."""
    cdef SendBuf buf
    cdef long left = count
    if len(message_id) != 16:
        raise ValueError("a message id has 16 digits")
    buf.data = NULL
    buf.length = buf.room = buf.usual = 0
    try:
        while left > 0:
            if frame_message(&buf, timestamp_ns, attempts, message_id, body, <unsigned int> len(body)) < 0:
                raise MemoryError
            left -= 1
        return buf.data[:buf.length]
    finally:
        sendbuf_free(&buf)
