"""Checksums, the command parser and frames (nsqc.wire), driven from Python."""

cimport cython

from nsqc.wire.codecs cimport crc32c, crc32c_by_tables
from nsqc.wire.const cimport FRAME_ERROR, FRAME_RESPONSE
from nsqc.wire.framer cimport SendBuf, frame_bytes, frame_message, sendbuf_free
from nsqc.wire.parser cimport (MAX_ARGS, PARSE_BAD_COUNT, PARSE_BAD_MESSAGE_SIZE, PARSE_BAD_SIZE, PARSE_BODY,
                               PARSE_LINE, PARSE_LINE_TOO_LONG, PARSE_MESSAGE_TOO_BIG, PARSE_MORE, PARSE_OVERRUN,
                               PARSE_TOO_BIG, InBuf, Parser, command_has_body, inbuf_append, inbuf_drop, inbuf_free)


# ====================================================================== checksums


def checksum(const unsigned char[::1] data not None) -> int:
    """CRC-32C of bytes."""
    return crc32c(&data[0], data.shape[0]) if data.shape[0] else 0


def checksum_by_tables(const unsigned char[::1] data not None) -> int:
    """The same without the processor's instruction."""
    return crc32c_by_tables(&data[0], data.shape[0]) if data.shape[0] else 0


# ====================================================================== commands
# A CommandReader keeps an incomplete command as a connection does, so its results do not depend on how the input was
# cut.


ERRORS = {
    PARSE_LINE_TOO_LONG: "line too long", PARSE_BAD_SIZE: "bad size", PARSE_TOO_BIG: "too big",
    PARSE_BAD_COUNT: "bad count", PARSE_BAD_MESSAGE_SIZE: "bad message size",
    PARSE_MESSAGE_TOO_BIG: "message too big", PARSE_OVERRUN: "overrun",
}


@cython.final
cdef class CommandReader:
    """Splits V2 input into commands.

    max_message, max_body: limits in bytes; max_message applies to PUB and DPUB, max_body to other bodies.
    """

    cdef Parser parser
    cdef InBuf inbuf
    cdef long max_message, max_body
    cdef readonly object failed     # why no more input can be parsed; None: no error

    def __init__(self, max_message: int = 1048576, max_body: int = 5242880):
        self.parser = Parser.new(max_message)
        self.max_message = max_message
        self.max_body = max_body

    def __dealloc__(self):
        inbuf_free(&self.inbuf)

    @property
    def kept(self) -> int:
        """Bytes of the incomplete command."""
        return self.inbuf.length

    def feed(self, bytes data not None) -> list:
        """The complete commands, each as (words, body or None); at most four words of a line are kept."""
        cdef list commands = []
        if self.failed is None:
            if inbuf_append(&self.inbuf, data, len(data)) < 0:
                raise MemoryError
            while self.inbuf.length and self.failed is None:
                if not self._next(commands):
                    break
        return commands

    def count(self, bytes data not None) -> int:
        """Counts the commands in data without creating objects for them."""
        cdef const char *c_at = data
        cdef const char *c_end = c_at + len(data)
        cdef int event
        cdef long number = 0
        while c_at < c_end:
            event = self.parser.next(c_at, c_end)
            if event == PARSE_LINE and command_has_body(self.parser.command.kind):
                self.parser.expect_body(self.max_body)
                continue
            if event != PARSE_LINE and event != PARSE_BODY:
                break
            number += 1
            c_at += self.parser.used
        return number

    cdef bint _next(self, list commands) except -1:
        cdef Parser parser = self.parser
        cdef int event = parser.next(self.inbuf.data, self.inbuf.data + self.inbuf.length)
        cdef bytes name
        if event == PARSE_MORE:
            return False
        if event in ERRORS:
            self.failed = ERRORS[event]
            return False
        if event == PARSE_LINE and command_has_body(parser.command.kind):
            name = parser.command.args[0][:parser.command.arg_bytes[0]]
            parser.expect_body(self.max_message if name in (b"PUB", b"DPUB") else self.max_body)
            return True
        words = [parser.command.args[at][:parser.command.arg_bytes[at]]
                 for at in range(min(parser.command.argc, MAX_ARGS))]
        body = None
        if event == PARSE_BODY:
            body = parser.command.body[:parser.used - (parser.command.body - self.inbuf.data)]
        commands.append((words, body))
        inbuf_drop(&self.inbuf, parser.used)
        return True


# ====================================================================== frames


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
